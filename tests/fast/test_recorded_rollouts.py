"""Rollouts from recordings have the effects of those of Stable-Baselines3, or are not made."""

import copy
import logging

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from support.training import assert_same_tree

from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.recorded import rollouts

pytestmark = pytest.mark.training
CONTINUOUS, DISCRETE, TINY = "Pendulum-v1", "CartPole-v1", "tests/TinyReach-v0"
SMALL = {"n_steps": 40, "batch_size": 80, "n_epochs": 2}
GSDE = {"use_sde": True, "sde_sample_freq": 3}
SHORT = {"max_episode_steps": 15}  # truncated episodes
_BUFFER = ("observations", "actions", "rewards", "episode_starts", "values", "log_probs")
_BUFFER += ("advantages", "returns", "pos", "full")
_SEEN = ("n_steps", "obs_tensor", "actions", "values", "log_probs", "clipped_actions")
_SEEN += ("new_obs", "rewards", "dones", "infos", "n_rollout_steps")


class Digits(gym.Env):
    """Actions of several parts; the observation is float64."""

    observation_space = spaces.Box(-2.0, 2.0, (3,), np.float64)

    def __init__(self, parts="discrete"):
        kinds = {"discrete": spaces.MultiDiscrete([3, 2]), "binary": spaces.MultiBinary(3)}
        self.action_space = kinds[parts]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 3)
        return self.state, {}

    def step(self, action):
        self.state = np.clip(self.state + 0.1 * np.resize(action, 3) - 0.05, -2, 2)
        return self.state, float(-self.state @ self.state), bool(self.state[0] > 1.5), False, {}


CASES = {
    "ppo-discrete": (PPO, DISCRETE, False, SMALL, SHORT),
    "ppo-box-normalized": (PPO, CONTINUOUS, True, SMALL, SHORT),
    "ppo-gsde-normalized": (PPO, CONTINUOUS, True, {**SMALL, **GSDE}, SHORT),
    "ppo-gsde-squashed": (
        *(PPO, TINY, False),
        {**SMALL, **GSDE, "policy_kwargs": {"squash_output": True}},
        {},
    ),
    "ppo-relu-shared": (
        *(PPO, TINY, True),
        {**SMALL, "policy_kwargs": {"activation_fn": torch.nn.ReLU, "net_arch": [16]}},
        {},
    ),
    "ppo-multi-discrete": (PPO, Digits, False, SMALL, {}),
    "ppo-multi-binary": (PPO, lambda: Digits("binary"), False, SMALL, {}),
    "a2c-gsde-normalized": (A2C, CONTINUOUS, True, {"n_steps": 8, "use_sde": True}, SHORT),
    "a2c-discrete": (A2C, DISCRETE, False, {"n_steps": 5, "gae_lambda": 0.9}, SHORT),
    "trpo": (TRPO, CONTINUOUS, False, {"n_steps": 40, "batch_size": 80}, SHORT),
}


class Sees(BaseCallback):
    """Keeps what a callback can read; changes or stops something if asked."""

    def __init__(self, stop_at=None, act=None):
        super().__init__()
        self.seen, self.stop_at, self.act = [], stop_at, act

    def _on_rollout_start(self):
        self.seen.append(("start", self.model.num_timesteps, self.model.rollout_buffer.pos))

    def _on_step(self):
        self.seen.append([copy.deepcopy(_plain(self.locals[name])) for name in _SEEN])
        for info in self.seen[-1][_SEEN.index("infos")]:
            info.get("episode", {}).pop("t", None)
        if self.act is not None:
            self.act(self.model, self.n_calls)
        return self.n_calls != self.stop_at

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        self.seen.append([copy.deepcopy(getattr(buffer, name)) for name in _BUFFER])
        self.seen.append([_plain(self.locals["values"]), self.locals["n_steps"]])
        self.seen.append([torch.get_rng_state().numpy(), *self.model._last_obs])


def _plain(value):
    return value.detach().numpy().copy() if isinstance(value, torch.Tensor) else value


def train(case, steps, *, recorded, n_envs=4, callback=None, **mine):
    algorithm, env, normalized, arguments, env_kwargs = case
    torch.set_num_threads(1)
    limit = env_kwargs.get("max_episode_steps")
    wrap = None if limit is None else (lambda e: gym.wrappers.TimeLimit(e, limit))
    venv = make_vec_env(env, n_envs, seed=0, wrapper_class=wrap)
    venv = VecNormalize(venv) if normalized else venv
    mixins = (Accelerated,) if recorded else ()
    kind = with_iteration_hook(algorithm, *mixins) if mixins else algorithm
    policy = mine.get("policy", "MlpPolicy")
    agent = kind(policy, venv, seed=0, device="cpu", **copy.deepcopy(arguments))
    if recorded:
        record(agent)
    agent.set_logger(Logger(None, [Keeps()]))
    callback = callback or Sees()
    agent.learn(steps, callback)
    venv.close()
    return agent, callback


class Keeps:
    """An output of the log that keeps it."""

    def __init__(self):
        self.rows = []

    def write(self, values, excluded, step=0):
        timed = ("time/fps", "time/time_elapsed")
        self.rows.append((step, {k: v for k, v in values.items() if k not in timed}))

    def close(self):
        pass


def outcome(agent, callback):
    statistics = [
        vars(value) for value in vars(agent.env).values() if isinstance(value, RunningMeanStd)
    ]
    return {
        "seen": callback.seen,
        "weights": [p.detach().numpy() for p in agent.policy.parameters()],
        "log": agent.logger.output_formats[0].rows,
        "steps": [agent.num_timesteps, agent._n_updates, agent._episode_num],
        "random": [torch.get_rng_state().numpy(), np.random.get_state()[1]],
        "episodes": [{k: e[k] for k in "rl"} for e in agent.ep_info_buffer],
        "normalization": statistics,
    }


def assert_same_as_sb3(case, steps, **options):
    plain = outcome(*train(case, steps, recorded=False, **_copied(options)))
    agent, callback = train(case, steps, recorded=True, **_copied(options))
    assert_same_tree(outcome(agent, callback), plain)
    return agent


def _copied(options):
    return {key: make() if key == "callback" else make for key, make in options.items()}


@pytest.mark.parametrize("name", CASES)
def test_rollouts_are_those_of_stable_baselines3(name):
    agent = assert_same_as_sb3(CASES[name], 640)
    assert not agent.rollouts.reason
    assert agent.rollouts.n_recorded > 2


def test_one_environment_acts_the_same_with_gsde():
    agent = assert_same_as_sb3(CASES["ppo-gsde-normalized"], 160, n_envs=1)
    assert not agent.rollouts.reason


@pytest.mark.parametrize("name", ["ppo-discrete", "ppo-gsde-normalized"])
def test_a_callback_that_stops_leaves_the_same_behind(name):
    agent = assert_same_as_sb3(CASES[name], 640, callback=lambda: Sees(stop_at=93))
    assert agent.num_timesteps == 93 * 4


def _replace_a_bias(model, n_calls):
    if n_calls == 90:
        model.policy.action_net.bias = torch.nn.Parameter(torch.full((1,), 0.5))


def _load_weights(model, n_calls):
    if n_calls == 90:
        weights = model.policy.state_dict()
        model.policy.load_state_dict({k: v * 0.5 for k, v in weights.items()})


def _replace_a_network(model, n_calls):
    if n_calls == 90:
        model.policy.mlp_extractor.policy_net = torch.nn.Sequential(torch.nn.Linear(3, 64))


def _add_a_hook(model, n_calls):
    if n_calls == 130:  # when updates are recorded as well
        model.policy.action_net.register_forward_hook(lambda module, given, result: result + 1.0)


def _add_a_method(model, n_calls):
    if n_calls == 90:
        act = model.policy.forward
        model.policy.forward = lambda obs: [act(obs)[0] * 0.0, *act(obs)[1:]]


def _evaluate(model, n_calls):
    if n_calls % 30 == 0:
        model.policy.set_training_mode(True)
        model.predict(np.zeros((2, 3), np.float32))
        torch.rand(1)


CHANGES = [
    _replace_a_bias,
    _load_weights,
    _replace_a_network,
    _add_a_hook,
    _add_a_method,
    _evaluate,
]


@pytest.mark.parametrize("act", CHANGES)
def test_what_a_callback_changes_in_a_rollout_has_its_effect_at_once(act):
    assert_same_as_sb3(CASES["ppo-box-normalized"], 640, callback=lambda: Sees(act=act))


class OwnPolicy(ActorCriticPolicy):
    def forward(self, obs, deterministic=False):
        actions, values, log_prob = super().forward(obs, deterministic)
        return actions, values * float(np.random.rand()), log_prob


class OwnRollouts(PPO):
    def collect_rollouts(self, *args, **kwargs):
        self.gamma = 0.9
        return super().collect_rollouts(*args, **kwargs)


class OwnBuffer(RolloutBuffer):
    def add(self, obs, action, reward, *rest):
        super().add(obs, action, reward * 2.0, *rest)


@pytest.mark.parametrize("part", ["policy", "collect_rollouts", "buffer"])
def test_code_of_the_user_is_left_alone(part, caplog):
    caplog.set_level(logging.INFO)
    case = list(CASES["ppo-discrete"])
    if part == "collect_rollouts":
        case[0] = OwnRollouts
    if part == "buffer":
        case[3] = {**SMALL, "rollout_buffer_class": OwnBuffer}
    options = {"policy": OwnPolicy} if part == "policy" else {}
    agent = assert_same_as_sb3(case, 480, **options)
    assert agent.rollouts.n_recorded == 0
    assert "rollouts are not recorded: Own" in caplog.text


def test_a_wrong_rollout_is_noticed_and_not_used(monkeypatch, caplog):
    case = CASES["ppo-gsde-normalized"]
    expected = outcome(*train(case, 320, recorded=False))
    replay = rollouts.RecordedFunction._replay
    monkeypatch.setattr(
        rollouts.RecordedFunction, "_replay", lambda *given: [r * 1.5 for r in replay(*given)]
    )
    agent, callback = train(case, 320, recorded=True)
    assert "differs from SB3" in agent.rollouts.reason
    assert agent.rollouts.n_recorded == 1
    assert caplog.text.count("rollouts are not recorded") == 1
    assert_same_tree(outcome(agent, callback), expected)


def test_an_exception_in_a_rollout_leaves_an_agent_that_learns_on():
    def fail(model, n_calls):
        if n_calls == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(CASES["ppo-discrete"], 640, recorded=True, callback=Sees(act=fail))
    results = []
    for recorded in (False, True):
        callback = Sees(act=fail)
        torch.set_num_threads(1)
        mixins = (Accelerated,) if recorded else ()
        agent = with_iteration_hook(PPO, *mixins)(
            "MlpPolicy", make_vec_env(DISCRETE, 4, seed=0), seed=0, device="cpu", **SMALL
        )
        if recorded:
            record(agent)
        agent.set_logger(Logger(None, [Keeps()]))
        with pytest.raises(KeyboardInterrupt):
            agent.learn(640, callback)
        callback = Sees()
        agent.learn(320, callback, reset_num_timesteps=False)
        results.append(outcome(agent, callback))
    assert_same_tree(*results)

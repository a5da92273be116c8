"""Rollouts from recordings have the effects of those of Stable-Baselines3, or are not made."""

import copy
import logging
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from support.training import assert_same_tree
from twins import make_agent, outcome

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


class Keeps:
    """An output of the log that keeps it."""

    def __init__(self):
        self.rows = []

    def write(self, values, excluded, step=0):
        timed = ("time/fps", "time/time_elapsed")
        self.rows.append((step, {k: v for k, v in values.items() if k not in timed}))

    def close(self):
        pass


def made(case, *, recorded, **options):
    """Return an agent that keeps its log; some environments end their episodes soon."""
    *case, env_kwargs = case
    limit = partial(gym.wrappers.TimeLimit, **env_kwargs) if env_kwargs else None
    agent = make_agent(case, recorded=recorded, limit=limit, **options)
    agent.set_logger(Logger(None, [Keeps()]))
    return agent


def train(case, steps, *, recorded, callback=None, **options):
    """Return a trained agent, and all that is left and was seen."""
    agent, callback = made(case, recorded=recorded, **options), callback or Sees()
    agent.learn(steps, callback)
    return agent, left_behind(agent, callback)


def left_behind(agent, callback):
    return {**outcome(agent), "seen": callback.seen, "log": agent.logger.output_formats[0].rows}


def assert_same_as_sb3(case, steps, callback=Sees, **options):
    _, plain = train(case, steps, recorded=False, callback=callback(), **options)
    agent, found = train(case, steps, recorded=True, callback=callback(), **options)
    assert_same_tree(found, plain)
    return agent


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


def _evaluate(model, n_calls):
    if n_calls % 30 == 0:
        model.policy.set_training_mode(True)
        model.predict(np.zeros((2, 3), np.float32))
        torch.rand(1)


def test_a_callback_may_act_and_draw_random_numbers():
    assert_same_as_sb3(CASES["ppo-box-normalized"], 640, callback=lambda: Sees(act=_evaluate))


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
    _, expected = train(case, 320, recorded=False)
    replay = rollouts.RecordedFunction._replay
    monkeypatch.setattr(
        rollouts.RecordedFunction, "_replay", lambda *given: [r * 1.5 for r in replay(*given)]
    )
    agent, found = train(case, 320, recorded=True)
    assert "differs from SB3" in agent.rollouts.reason
    assert agent.rollouts.n_recorded == 1
    assert caplog.text.count("rollouts are not recorded") == 1
    assert_same_tree(found, expected)


def test_an_exception_in_a_rollout_leaves_an_agent_that_learns_on():
    def fail(model, n_calls):
        if n_calls == 50:
            raise KeyboardInterrupt

    results = []
    for recorded in (False, True):
        agent = made(CASES["ppo-discrete"], recorded=recorded)
        with pytest.raises(KeyboardInterrupt):
            agent.learn(640, Sees(act=fail))
        callback = Sees()
        agent.learn(320, callback, reset_num_timesteps=False)
        results.append(left_behind(agent, callback))
    assert_same_tree(*results)

"""Actions of off-policy algorithms from recordings are those of Stable-Baselines3."""

import copy
import logging

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize
from support.training import assert_same_tree

from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.recorded import rollouts

pytestmark = pytest.mark.training
CONTINUOUS, DISCRETE = "Pendulum-v1", "CartPole-v1"
SMALL = {"learning_starts": 40, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}
RARE = {**SMALL, "train_freq": 8, "gradient_steps": 2}
GREEDY = {**RARE, "exploration_fraction": 0.5, "exploration_final_eps": 0.2}
CASES = {
    "sac": (SAC, CONTINUOUS, 1, False, SMALL),
    "sac-gsde": (SAC, CONTINUOUS, 3, True, {**RARE, "use_sde": True, "sde_sample_freq": 3}),
    "sac-gsde-one": (SAC, CONTINUOUS, 1, False, {**RARE, "use_sde": True}),
    "td3": (TD3, CONTINUOUS, 2, True, RARE),
    "tqc": (TQC, CONTINUOUS, 1, True, RARE),
    "dqn": (DQN, DISCRETE, 3, False, GREEDY),
    "qrdqn": (QRDQN, DISCRETE, 1, False, GREEDY),
}


def train(case, *, recorded, callback=None, base=None, wrap=lambda venv: venv):
    algorithm, env, n_envs, normalized, arguments = case
    torch.set_num_threads(1)
    venv = wrap(make_vec_env(env, n_envs, seed=0))
    arguments = copy.deepcopy(arguments)
    if algorithm is TD3:
        arguments["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, 0.1))
    kind = base or algorithm
    kind = with_iteration_hook(kind, Accelerated) if recorded else kind
    agent = kind(
        *("MlpPolicy", VecNormalize(venv) if normalized else venv),
        **{"seed": 0, "device": "cpu", "buffer_size": 2_000, **arguments},
    )
    if recorded:
        record(agent)
    agent.learn(360, callback)
    venv.close()
    return agent


def outcome(agent):
    memory = agent.replay_buffer
    names = ("observations", "actions", "rewards", "dones", "pos", "full")
    return {
        "memory": {name: getattr(memory, name) for name in names},
        "weights": [p.detach().numpy() for p in agent.policy.parameters()],
        "mode": [module.training for module in agent.policy.modules()],
        "random": [torch.get_rng_state().numpy(), np.random.get_state()[1]],
    }


@pytest.mark.parametrize("name", CASES)
def test_actions_are_those_of_stable_baselines3(name):
    plain = outcome(train(CASES[name], recorded=False))
    agent = train(CASES[name], recorded=True)
    assert_same_tree(outcome(agent), plain)
    assert not agent.rollouts.reason


class Flipped(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()[:, ::-1]

    def step_wait(self):
        observations, *rest = self.venv.step_wait()
        return observations[:, ::-1], *rest


def test_observations_may_be_in_any_order_in_memory():
    plain = outcome(train(CASES["sac"], recorded=False, wrap=Flipped))
    agent = train(CASES["sac"], recorded=True, wrap=Flipped)
    assert_same_tree(outcome(agent), plain)
    assert not agent.rollouts.reason


class Uneven(VecEnvWrapper):
    def __init__(self, venv):
        super().__init__(venv, action_space=spaces.Box(-0.3, 1.7, (1,), np.float32))

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_actions_between_uneven_limits_are_rounded_as_if_unscaled_and_scaled_again(name):
    plain = outcome(train(CASES[name], recorded=False, wrap=Uneven))
    agent = train(CASES[name], recorded=True, wrap=Uneven)
    assert_same_tree(outcome(agent), plain)
    assert not agent.rollouts.reason


def test_what_a_callback_changes_has_its_effect_at_once():
    def change(seen, _):
        agent = seen["self"]
        if agent.num_timesteps == 200:
            layer = agent.policy.actor.mu[0]
            layer.bias = torch.nn.Parameter(layer.bias.detach() + 0.5)
        if agent.num_timesteps == 280:
            agent.policy.actor.register_forward_hook(lambda module, given, result: result * 0.5)
        return True

    case = (*CASES["td3"][:4], {**RARE, "train_freq": 1000})
    plain = outcome(train(case, recorded=False, callback=change))
    agent = train(case, recorded=True, callback=change)
    assert_same_tree(outcome(agent), plain)
    assert "hooks" in agent.rollouts.reason


class Turned(SAC):
    def predict(self, *args, **kwargs):
        action, state = super().predict(*args, **kwargs)
        return -action, state


def test_a_predict_of_the_user_is_left_alone(caplog):
    caplog.set_level(logging.INFO)
    plain = outcome(train(CASES["sac"], recorded=False, base=Turned))
    assert_same_tree(outcome(train(CASES["sac"], recorded=True, base=Turned)), plain)
    assert "rollouts are not recorded: Turned.predict" in caplog.text


def test_a_wrong_action_is_noticed_and_not_used(monkeypatch):
    plain = outcome(train(CASES["sac"], recorded=False))
    replay = rollouts.RecordedFunction._replay
    monkeypatch.setattr(
        rollouts.RecordedFunction, "_replay", lambda *given: [r * 1.5 for r in replay(*given)]
    )
    agent = train(CASES["sac"], recorded=True)
    assert_same_tree(outcome(agent), plain)
    assert "differs from SB3" in agent.rollouts.reason

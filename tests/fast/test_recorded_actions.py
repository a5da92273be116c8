"""Actions of off-policy algorithms from recordings are those of Stable-Baselines3."""

import logging

import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnvWrapper
from support.training import assert_same_tree
from twins import outcome, same_as_sb3, train

from rlzoo_plus.fast.recorded import rollouts

pytestmark = pytest.mark.training
CONTINUOUS, DISCRETE = "Pendulum-v1", "CartPole-v1"
SMALL = {
    "learning_starts": 40,
    "batch_size": 16,
    "policy_kwargs": {"net_arch": [16]},
    "buffer_size": 2_000,
}
RARE = {**SMALL, "train_freq": 8, "gradient_steps": 2}
GREEDY = {**RARE, "exploration_fraction": 0.5, "exploration_final_eps": 0.2}
NOISE = {"action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}
GSDE = {**RARE, "use_sde": True}
CASES = {
    "sac": ((SAC, CONTINUOUS, False, SMALL), 1),
    "sac-gsde": ((SAC, CONTINUOUS, True, {**GSDE, "sde_sample_freq": 3}), 3),
    "sac-gsde-one": ((SAC, CONTINUOUS, False, GSDE), 1),
    "td3": ((TD3, CONTINUOUS, True, {**RARE, **NOISE}), 2),
    "tqc": ((TQC, CONTINUOUS, True, RARE), 1),
    "dqn": ((DQN, DISCRETE, False, GREEDY), 3),
    "qrdqn": ((QRDQN, DISCRETE, False, GREEDY), 1),
}


def check(name, **options):
    case, n_envs = CASES[name]
    return same_as_sb3(case, 360, n_envs=n_envs, **options)


@pytest.mark.parametrize("name", CASES)
def test_actions_are_those_of_stable_baselines3(name):
    assert not check(name).rollouts.reason


class Flipped(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()[:, ::-1]

    def step_wait(self):
        observations, *rest = self.venv.step_wait()
        return observations[:, ::-1], *rest


def test_observations_may_be_in_any_order_in_memory():
    assert not check("sac", wrap=Flipped).rollouts.reason


class Uneven(VecEnvWrapper):
    def __init__(self, venv):
        super().__init__(venv, action_space=spaces.Box(-0.3, 1.7, (1,), np.float32))

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_actions_between_uneven_limits_are_rounded_as_if_unscaled_and_scaled_again(name):
    assert not check(name, wrap=Uneven).rollouts.reason


class Turned(SAC):
    def predict(self, *args, **kwargs):
        action, state = super().predict(*args, **kwargs)
        return -action, state


def test_a_predict_of_the_user_is_left_alone(caplog):
    caplog.set_level(logging.INFO)
    same_as_sb3((Turned, *CASES["sac"][0][1:]), 360, n_envs=1)
    assert "rollouts are not recorded: Turned.predict" in caplog.text


def test_a_wrong_action_is_noticed_and_not_used(monkeypatch):
    case, n_envs = CASES["sac"]
    plain = outcome(train(case, 360, recorded=False, n_envs=n_envs))
    replay = rollouts.RecordedFunction._replay
    monkeypatch.setattr(
        rollouts.RecordedFunction, "_replay", lambda *given: [r * 1.5 for r in replay(*given)]
    )
    agent = train(case, 360, recorded=True, n_envs=n_envs)
    assert_same_tree(outcome(agent), plain)
    assert "differs from SB3" in agent.rollouts.reason

"""The hook stands at the top of each iteration, of every family of algorithms."""

import contextlib

import pytest
import stable_baselines3
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import StopTraining, with_iteration_hook
from rlzoo_plus.envs.factory import make_train_env


def steps_at_hook(algo, *overrides, stop_at=None):
    """Train; return the steps that were taken each time the hook was passed."""
    env = "tests/TinyMasked-v0" if algo == "maskable_ppo" else "tests/TinyReach-v0"
    config = tiny_config(algo, env, *overrides)
    agent, seen = make_agent(config, make_train_env(config, 1), 1), []

    def hook():
        seen.append(agent.num_timesteps)
        if stop_at is not None and agent.num_timesteps >= stop_at:
            raise StopTraining("enough")

    agent.before_iteration = [hook]
    with contextlib.suppress(StopTraining):
        agent.learn(config.n_timesteps)
    return seen


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "trpo", "recurrent_ppo", "maskable_ppo"])
def test_on_policy_algorithms_pass_the_hook_before_each_rollout(algo):
    assert steps_at_hook(algo) == [0, 32]


@pytest.mark.training
def test_several_environments_count_together():
    assert steps_at_hook("ppo", "n_envs=2", "n_timesteps=128") == [0, 64]


@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "td3", "tqc", "crossq"])
def test_off_policy_algorithms_pass_the_hook_before_each_collection(algo):
    assert steps_at_hook(algo) == list(range(0, 64, 4))


@pytest.mark.training
def test_random_search_passes_the_hook_before_each_update():
    # Two directions, both ways, an episode of eight steps each.
    assert steps_at_hook("ars", "n_timesteps=96") == [0, 32, 64]


@pytest.mark.training
def test_training_stops_at_the_hook():
    assert steps_at_hook("ppo", "n_timesteps=320", stop_at=64) == [0, 32, 64]


def test_the_class_keeps_its_algorithm_s_name():
    hooked = with_iteration_hook(stable_baselines3.PPO)
    assert hooked.__name__ == "PPO"
    assert issubclass(hooked, stable_baselines3.PPO)

"""Recorded and fast updates of agents to which other rooms add something."""

import numpy as np
import pytest
import torch
from support.training import bundle_weights, make_config, tiny_config, train_run

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env

pytestmark = pytest.mark.training


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_critic_that_sees_more_is_recorded_with_the_same_bits(algo):
    torch.set_num_threads(1)
    # What is one of several is not recorded.
    overrides = (
        *("env.kwargs.picture=false", "normalize=true", "network.critic_observation=[zeta]"),
        "env.wrappers=[{filter_observation: {filter_keys: [zeta, alpha]}}]",
    )
    agents = []
    for on in ("true", "false"):
        config = tiny_config(algo, "tests/TinyDict-v0", *overrides, f"record_updates={on}")
        agents.append(make_agent(config, make_train_env(config, 1), 1).learn(256))
    one, two = (agent.policy.state_dict() for agent in agents)
    assert agents[0].recorded.n_recorded
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_loss_of_symmetry_keeps_recordings_out_and_is_not_lost(tmp_path):
    found = []
    for key in ("record_updates=false", "fast=true"):
        config = make_config(
            *("algo=ppo", "env=cartpole_bullet", "env.kwargs.episode_s=1", "algo.symmetry=loss"),
            *("tuned=none", "network.net_arch=[16]", "normalize=false", "eval.episodes=1"),
            *("algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32"),
            *("num_threads=1", "device=cpu", "n_timesteps=256", key),
        )
        run, _ = train_run(tmp_path / key, config)
        found.append(bundle_weights(run.final))
    assert all(np.array_equal(value, found[1][name]) for name, value in found[0].items())

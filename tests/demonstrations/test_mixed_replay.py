"""Demonstrations in the batches of off-policy algorithms."""

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
import torch
from support.resuming import assert_same_in_pieces
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.demonstrations.data_of_run import with_digest
from rlzoo_plus.demonstrations.minari_format import read_dataset
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

HYPER = "algo.hyperparams"


def config_of(algo, path, *overrides):
    discrete = ("env.kwargs.discrete=true",) if algo == "dqn" else ()
    words = (f"data.path={path}", *discrete, *overrides)
    return with_digest(tiny_config(algo, "tests/TinyReach-v0", *words))


def agent_of(config):
    # Other seeds than those of the demonstrations: no step is in both.
    return make_agent(config, make_train_env(config, 100), 100)


@pytest.mark.training
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_share_of_each_batch_is_demonstrated(share, reach):
    agent = agent_of(config_of("sac", reach, f"data.share={share}"))
    agent.learn(30)
    batch = agent.replay_buffer.sample(40)
    shown = np.concatenate([one.observations[:-1] for one in read_dataset(reach).episodes])
    known = {row.tobytes() for row in shown}
    is_shown = [row.tobytes() in known for row in batch.observations.numpy()]
    assert is_shown == [False] * round(40 * (1 - share)) + [True] * round(40 * share)


def test_demonstrated_steps_are_stored_as_experienced_ones(reach):
    agent, data = agent_of(config_of("sac", reach)), read_dataset(reach)
    shown = agent.replay_buffer.demonstrations
    first = data.episodes[0]
    count = first.n_steps
    assert shown.size() == data.n_steps
    assert np.array_equal(shown.observations[:count, 0], first.observations[:-1])
    assert np.array_equal(shown.next_observations[:count, 0], first.observations[1:])
    assert np.allclose(shown.actions[:count, 0], first.actions)
    assert np.array_equal(shown.rewards[:count, 0], first.rewards.astype(np.float32))
    # A time limit ends an episode and says nothing of what comes after.
    assert shown.dones[count - 1, 0] == shown.timeouts[count - 1, 0] == 1
    assert shown.dones[: count - 1].sum() == 0


@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "td3", "tqc", "crossq", "dqn"])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_updates_are_recorded_with_the_same_bits(algo, n_steps, reach, reach_discrete):
    path = reach_discrete if algo == "dqn" else reach
    torch.set_num_threads(1)
    agents = []
    for on in ("true", "false"):
        words = (f"record_updates={on}", "normalize=true", f"{HYPER}.n_steps={n_steps}")
        agents.append(agent_of(config_of(algo, path, *words)).learn(256))
    one, two = (agent.policy.state_dict() for agent in agents)
    assert agents[0].recorded.n_recorded
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.training
@pytest.mark.parametrize("algo", ["sac", "td3", "tqc", "crossq", "dqn"])
def test_a_resumed_run_is_the_one_that_was_never_stopped(algo, reach, reach_discrete, tmp_path):
    path = reach_discrete if algo == "dqn" else reach
    often = ("n_timesteps=96", "eval.every_steps=48", "normalize=true")
    assert_same_in_pieces(tmp_path, config_of(algo, path, *often), 5)


@pytest.mark.training
def test_n_step_returns_are_of_demonstrations_too(reach, tmp_path):
    config = config_of("sac", reach, f"{HYPER}.n_steps=3", "n_timesteps=96")
    assert_same_in_pieces(tmp_path, config, 5)
    agent = agent_of(config)
    agent.learn(30)
    assert agent.replay_buffer.demonstrations.n_steps == 3
    assert agent.replay_buffer.sample(8).discounts.shape == (8, 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.share=0.01",), "leaves no room for both"),
        (("data.share=0.99",), "leaves no room for both"),
    ],
)
def test_a_share_that_is_all_or_nothing_is_refused(overrides, message, reach):
    with pytest.raises(ConfigError, match=message):
        agent_of(config_of("sac", reach, *overrides))


def test_hindsight_replay_is_refused(reach):
    from rlzoo_plus.demonstrations.mixed_replay import mix

    agent = agent_of(tiny_config("her", "tests/TinyGoal-v0"))
    with pytest.raises(ConfigError, match="hindsight replay relabels its own"):
        mix(agent, read_dataset(reach), 0.5)

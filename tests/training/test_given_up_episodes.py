"""Where a running episode cannot be brought back, it ends in the replay buffer too."""

import warnings

import numpy as np
import pytest
from support.training import tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.training.resume.snapshot import start_new_episodes

pytestmark = pytest.mark.training
CASES = {
    "plain": ("sac", "tests/TinyReach-v0"),
    "dictionary": ("sac", "tests/TinyDict-v0", "env.kwargs={picture: false}"),
    "n steps": ("sac", "tests/TinyReach-v0", "algo.hyperparams.n_steps=3"),
    "thrifty": (
        "sac",
        "tests/TinyReach-v0",
        "algo.hyperparams.optimize_memory_usage=true",
        "algo.hyperparams.replay_buffer_kwargs={handle_timeout_termination: false}",
    ),
    "hindsight": ("her", "tests/TinyGoal-v0", "algo.hyperparams.buffer_size=100"),
}


def agent_of(case):
    """Return an agent in the middle of its second episode."""
    config = tiny_config(*CASES[case], "normalize=true", "n_envs=2")
    agent = make_agent(config, make_train_env(config, 3), 0)
    agent.learn(22)
    return agent


@pytest.mark.parametrize("case", list(CASES))
def test_the_last_step_in_the_buffer_ends_its_episode(case):
    agent = agent_of(case)
    buffer = agent.replay_buffer
    last = (buffer.pos - 1) % buffer.buffer_size
    assert not buffer.dones[last].any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start_new_episodes(agent)
    assert buffer.dones[last].all()
    # Cut short is not the same as failed: what comes after still counts.
    assert buffer.timeouts[last].all() == buffer.handle_timeout_termination


def test_the_end_of_an_episode_that_was_over_stays_what_it_was():
    agent = agent_of("plain")
    buffer = agent.replay_buffer
    buffer.dones[buffer.pos - 1], buffer.timeouts[buffer.pos - 1] = 1, 0
    start_new_episodes(agent)
    assert not buffer.timeouts[buffer.pos - 1].any()


@pytest.mark.parametrize("case", ["plain", "hindsight"])
def test_the_agent_sees_the_beginning_of_new_episodes(case):
    agent = agent_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start_new_episodes(agent)
    assert agent._last_episode_starts.all()
    assert agent.env.get_attr("rewards") == [[], []]
    seen, original = agent._last_obs, agent._last_original_obs
    if case == "plain":
        np.testing.assert_array_equal(agent.env.normalize_obs(original), seen)
        assert original[:, 2].tolist() == [0, 0]
    else:
        assert original["observation"].ravel().tolist() == [0, 0]

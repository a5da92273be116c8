"""The wrappers that the manager adds to an environment or offers by name."""

import gymnasium as gym
import numpy as np
import pytest
from support.tiny_envs import TinyReach

from rlzoo_plus.envs.episodes import ReproducibleResets, WarmupResets
from rlzoo_plus.envs.wrappers import MaskObservation


def _first_observations(env, count, seed):
    return [env.reset(seed=seed if i == 0 else None)[0] for i in range(count)]


def test_unseeded_resets_depend_on_the_first_seed_alone():
    by_itself = [_first_observations(TinyReach(restless=True), 2, seed=5)[1] for _ in range(2)]
    assert not np.array_equal(*by_itself)
    first = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=5)
    again = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=5)
    other = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=6)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[1], other[1])
    assert len({tuple(observation) for observation in first}) == 5


def test_a_seeded_reset_passes_the_seed_on():
    env = ReproducibleResets(TinyReach())
    np.testing.assert_array_equal(env.reset(seed=3)[0], TinyReach().reset(seed=3)[0])


def test_named_episode_seeds_are_used_in_order_and_new_ones_replace_those_left_over():
    env = ReproducibleResets(TinyReach())
    env.set_episode_seeds([11, 12, 13])
    env.reset()
    env.reset()
    env.set_episode_seeds([7])
    env.reset()
    assert env.unwrapped.seeds == [11, 12, 7]
    env.reset()
    assert env.unwrapped.seeds[3] is not None


def test_a_warm_up_happens_before_the_first_reset_and_uses_up_no_episode_seed():
    env = ReproducibleResets(WarmupResets(TinyReach(), 2))
    env.set_episode_seeds([11, 12])
    env.reset()
    env.reset()
    assert env.unwrapped.seeds == [11, 11, 11, 12]


def test_masked_observation_hides_the_entries_and_their_bounds():
    env = MaskObservation(gym.make("CartPole-v1"), hidden=[1, 3])
    observation, _ = env.reset(seed=0)
    assert list(observation[[1, 3]]) == [0, 0]
    assert observation[0] != 0
    assert list(env.observation_space.high[[1, 3]]) == [0, 0]
    assert env.observation_space.contains(observation)


def test_masked_observation_leaves_the_environment_s_own_array_alone():
    class Kept(gym.ObservationWrapper):
        def observation(self, observation):
            self.last = observation
            return observation

    kept = Kept(TinyReach())
    MaskObservation(kept, hidden=[0]).reset(seed=0)
    assert kept.last[0] != 0


def test_masking_a_picture_is_refused():
    with pytest.raises(ValueError, match="flat Box"):
        MaskObservation(gym.make("tests/TinyImage-v0"), hidden=[0])

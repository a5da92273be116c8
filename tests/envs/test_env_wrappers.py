"""The wrappers that the manager adds to an environment or offers by name."""

import gymnasium as gym
import numpy as np
import pytest
from support.tiny_envs import TinyReach

from rlzoo_plus.envs.episodes import ReproducibleResets, WarmupResets
from rlzoo_plus.envs.wrappers import MaskObservation


def _first_observations(env, count, seed):
    return [env.reset(seed=seed if i == 0 else None)[0] for i in range(count)]


def test_the_restless_environment_is_not_reproducible_by_itself():
    first = _first_observations(TinyReach(restless=True), 3, seed=5)
    again = _first_observations(TinyReach(restless=True), 3, seed=5)
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[1], again[1])


def test_unseeded_resets_depend_on_the_first_seed_alone():
    first = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=5)
    again = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=5)
    other = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=6)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[1], other[1])


def test_episodes_behind_reproducible_resets_differ_from_each_other():
    observations = _first_observations(ReproducibleResets(TinyReach(restless=True)), 5, seed=5)
    assert len({tuple(o) for o in observations}) == 5


def test_a_seeded_reset_passes_the_seed_on():
    env = ReproducibleResets(TinyReach())
    np.testing.assert_array_equal(env.reset(seed=3)[0], TinyReach().reset(seed=3)[0])


def test_named_episode_seeds_are_used_in_order():
    env = ReproducibleResets(TinyReach())
    env.set_episode_seeds([11, 12, 13])
    for _ in range(3):
        env.reset()
    assert env.unwrapped.seeds == [11, 12, 13]


def test_resets_after_the_named_seeds_still_have_a_seed():
    env = ReproducibleResets(TinyReach())
    env.set_episode_seeds([11])
    env.reset()
    env.reset()
    assert env.unwrapped.seeds[1] is not None


def test_new_episode_seeds_replace_those_left_over():
    env = ReproducibleResets(TinyReach())
    env.set_episode_seeds([1, 2, 3])
    env.reset()
    env.set_episode_seeds([7])
    env.reset()
    assert env.unwrapped.seeds == [1, 7]


def test_warm_up_happens_before_the_first_reset_only():
    env = WarmupResets(TinyReach(), 2)
    env.reset(seed=4)
    env.reset(seed=5)
    assert env.unwrapped.seeds == [4, 4, 4, 5]


def test_a_warm_up_uses_up_no_episode_seed():
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

"""The wrappers that change a task: what they do, and that an episode behind them is replayed."""

from collections import OrderedDict

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from support.tiny_envs import TinyGoal
from support.training import tiny_config

from rlzoo_plus.envs.exactness import replay_problem
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.envs.wrappers import (
    DelayedReward,
    FrameSkip,
    History,
    MaskVelocity,
    NoisyAction,
    PlainSpaces,
    SmoothAction,
    TruncateOnSuccess,
)
from rlzoo_plus.errors import ConfigError


class Counting(gym.Env):
    """Rewards 1, 2, 3, ... and ends after five steps; remembers the actions it got."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, solved=()):
        self.solved = solved
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.actions = 0, []
        return self._see(), {}

    def step(self, action):
        self.steps += 1
        self.actions.append(np.array(action))
        info = {"is_success": self.steps in self.solved}
        return self._see(), float(self.steps), self.steps == 5, False, info

    def _see(self):
        return np.array([self.steps, 10 * self.steps], np.float32)


def action(value=0.5):
    return np.array([value], np.float32)


def rewards_of(env, n_steps):
    env.reset(seed=0)
    return [env.step(action())[1] for _ in range(n_steps)]


def test_frame_skip_adds_up_rewards_and_stops_at_the_end():
    env = FrameSkip(Counting(), skip=3)
    env.reset(seed=0)
    assert env.step(action())[1:3] == (6.0, False)
    assert env.step(action())[1:3] == (9.0, True)


def test_delayed_rewards_come_together_and_at_the_end_of_their_own_episode():
    env = DelayedReward(Counting(), delay=2)
    assert rewards_of(env, 3) == [0, 3, 0]
    assert rewards_of(env, 5) == [0, 3, 0, 7, 5]


def test_an_episode_is_truncated_after_successes_in_a_row():
    env = TruncateOnSuccess(Counting(solved=(1, 3, 4)), n_successes=2, reward_offset=-1)
    env.reset(seed=0)
    results = [env.step(action())[1:4] for _ in range(4)]
    assert [result[2] for result in results] == [False, False, False, True]
    assert [result[0] for result in results] == [0, 1, 2, 3]


def test_hindsight_replay_sees_the_offset_of_the_reward():
    env = TruncateOnSuccess(TinyGoal(), reward_offset=1.0)
    goals = np.array([[0.0], [5.0]])
    np.testing.assert_array_equal(env.compute_reward(goals, np.zeros((2, 1)), {}), [1, 0])


def test_noise_follows_from_the_seed_and_stays_inside_the_action_space():
    given = []
    for _ in range(2):
        env = NoisyAction(Counting(), noise_std=2.0)
        rewards_of(env, 4)
        given.append(np.concatenate(env.unwrapped.actions))
    np.testing.assert_array_equal(*given)
    assert len(set(given[0])) > 1
    assert np.abs(given[0]).max() <= 1
    assert given[0].dtype == np.float32


def test_actions_are_smoothed_from_zero_in_each_episode():
    env = SmoothAction(Counting(), smoothing_coef=0.5)
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(3):
            env.step(action(1.0))
        np.testing.assert_array_equal(np.concatenate(env.unwrapped.actions), [0.5, 0.75, 0.875])


def test_a_history_holds_observations_oldest_first_and_then_actions():
    env = History(Counting(), horizon=2)
    first = env.reset(seed=0)[0]
    env.step(action(0.25))
    # What was returned does not change.
    assert first.tolist() == [0, 0, 0, 0, 0, 0]
    seen = env.step(action(0.5))[0]
    assert seen.tolist() == [1, 10, 2, 20, 0.25, 0.5]
    assert env.observation_space.contains(seen)
    assert env.reset(seed=0)[0].tolist() == [0, 0, 0, 0, 0, 0]


def test_the_history_of_a_dictionary_is_that_of_its_observation():
    env = History(TinyGoal(), horizon=3)
    seen = env.reset(seed=0)[0]
    assert set(seen) == {"observation", "achieved_goal", "desired_goal"}
    assert seen["observation"].shape == env.observation_space["observation"].shape == (6,)
    assert env.observation_space.contains(env.step(action())[0])


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1"])
def test_velocities_are_hidden(name):
    env = MaskVelocity(gym.make(name))
    env.reset(seed=0)
    env.action_space.seed(0)
    hidden = np.flatnonzero((env.observation_space.low == 0) & (env.observation_space.high == 0))
    seen = np.array([env.step(env.action_space.sample())[0] for _ in range(5)])
    assert len(hidden)
    assert not seen[:, hidden].any()
    assert seen.any(axis=0).sum() == seen.shape[1] - len(hidden)


def test_the_ids_without_velocities_are_registered():
    env = make_env(tiny_config("ppo", "CartPoleNoVel-v1").env)
    seen, _ = env.reset(seed=0)
    assert seen[[1, 3]].tolist() == [0, 0]
    assert seen[[0, 2]].all()


WRAPPERS = {
    "frame_skip": "{frame_skip: {skip: 3}}",
    "delayed_reward": "{delayed_reward: {delay: 4}}",
    "truncate_on_success": "{truncate_on_success: {n_successes: 2}}",
    "noisy_action": "{noisy_action: {noise_std: 0.3}}",
    "noisy_observation": "{noisy_observation: {noise_std: 0.3}}",
    "delayed_action": "{delayed_action: {delay: 2}}",
    "smooth_action": "{smooth_action: {smoothing_coef: 0.7}}",
    "history": "{history: {horizon: 3}}",
    "mask_velocity": "mask_velocity",
    "several": "frame_skip,noisy_action,{smooth_action: {smoothing_coef: 0.2}},history",
}


@pytest.mark.parametrize("wrappers", WRAPPERS.values(), ids=WRAPPERS)
def test_an_episode_behind_a_wrapper_is_replayed_exactly(wrappers):
    config = tiny_config("ppo", "Pendulum-v1", f"env.wrappers=[{wrappers}]")
    assert replay_problem(config.env) is None


MISTAKES = {
    "{frame_skip: {skip: 0}}": "skip=0",
    "{delayed_reward: {delay: 1.5}}": "delay=1.5",
    "{history: {horizon: -1}}": "horizon=-1",
    "{smooth_action: {smoothing_coef: 1}}": "smoothing_coef=1",
    "{noisy_action: {noise_std: -1}}": "noise_std=-1",
    "{noisy_observation: {noise_std: -1}}": "noise_std=-1",
    "{delayed_action: {delay: 0}}": "delay=0",
    "{frame_skip: {skip: three}}": "three",
}


@pytest.mark.parametrize(("wrapper", "named"), MISTAKES.items())
def test_a_wrong_argument_is_named(wrapper, named):
    with pytest.raises(ConfigError, match=named):
        make_env(tiny_config("ppo", "Pendulum-v1", f"env.wrappers=[{wrapper}]").env)


@pytest.mark.parametrize("wrapper", ["history", "noisy_action", "smooth_action"])
def test_a_wrapper_of_continuous_actions_refuses_others(wrapper):
    with pytest.raises(ConfigError, match=f"{wrapper} needs a .*Box"):
        make_env(tiny_config("ppo", "CartPole-v1", f"env.wrappers=[{wrapper}]").env)


def test_an_environment_with_unknown_velocities_is_refused():
    with pytest.raises(ConfigError, match="mask_observation"):
        make_env(tiny_config("ppo", "tests/TinyReach-v0", "env.wrappers=[mask_velocity]").env)


class _Mirror(gym.Env):
    """Gives back what it is acted with."""

    def __init__(self, actions, observations):
        self.action_space, self.observation_space = actions, observations

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {"done": action}


@pytest.mark.parametrize(
    ("inside", "outside", "given", "done"),
    [
        (spaces.Discrete(3, start=-1), spaces.Discrete(3), np.int64(2), 1),
        (spaces.MultiDiscrete([[3], [2]], start=[[-1], [5]]), spaces.MultiDiscrete([3, 2]),
         np.array([0, 1]), [[-1], [6]]),
        (spaces.MultiBinary([2, 1]), spaces.MultiBinary(2), np.array([1, 0], np.int8), [[1], [0]]),
        (spaces.Box(-5, 5, (2,), np.int64), spaces.Box(-5, 5, (2,)), np.float32([0.6, -4.7]),
         [1, -5]),
        (spaces.Box(-1, 1, (), np.float32), spaces.Box(-1, 1, (1,)), np.float32([0.5]), 0.5),
    ],
)  # fmt: skip
def test_plain_spaces_acts_with_what_the_space_inside_holds(inside, outside, given, done):
    env = PlainSpaces(_Mirror(inside, spaces.Discrete(2)))
    assert env.action_space == outside
    env.reset()
    found = env.step(given)[4]["done"]
    assert inside.contains(found)
    np.testing.assert_array_equal(found, done)


def test_plain_spaces_observes_within_its_own_space():
    parts = [("z", spaces.Discrete(4, start=2)), ("a", spaces.Box(-1, 1, (), np.float64))]
    parts += [("m", spaces.MultiDiscrete([[3, 2]], start=[[7, -3]])), ("t", spaces.MultiBinary(2))]
    env = PlainSpaces(_Mirror(spaces.Discrete(2), spaces.Dict(OrderedDict(parts))))
    assert list(env.observation_space) == ["z", "a", "m", "t"]
    for _ in range(20):
        assert env.observation_space.contains(env.reset()[0])
        assert env.observation_space.contains(env.step(0)[0])

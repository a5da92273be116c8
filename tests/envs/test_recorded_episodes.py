"""A running episode is brought back in a fresh environment, or what differs is told."""

import gymnasium as gym
import numpy as np
import pytest
from support.tiny_envs import TinyEndless, TinyReach
from support.training import assert_same_tree, make_config, tiny_config

from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.single import make_env

FRAMES = "env.wrappers=[{gymnasium.wrappers.FrameStackObservation:{stack_size: 3}}]"
CASES = {
    "continuous": ("tests/TinyReach-v0",),
    "discrete": ("tests/TinyReach-v0", "env.kwargs={discrete: true}"),
    "dictionary": ("tests/TinyDict-v0",),
    "goal": ("tests/TinyGoal-v0",),
    "picture": ("tests/TinyImage-v0",),
    "masked": ("tests/TinyLevers-v0",),
    "time limit": ("tests/TinyEndless-v0", "env.time_limit=7"),
    "stacked frames": ("tests/TinyReach-v0", FRAMES),
    "warm-up": ("tests/TinyReach-v0", "env.warmup_resets=2"),
    "numbers": ("FrozenLake-v1",),
    "torque": ("Pendulum-v1",),
}


def recorded(env_id, *overrides):
    return make_env(tiny_config("ppo", env_id, *overrides).env, recorded=True)


def sample(env):
    if hasattr(env.unwrapped, "action_masks"):
        allowed = np.flatnonzero(env.unwrapped.action_masks())
        return np.array([allowed[0], allowed[1] - 3])
    return env.action_space.sample()


def play(env, n_steps):
    """Act at random, and start anew at an end; return what was seen, and the episode's rewards."""
    seen, rewards = [], []
    for _ in range(n_steps):
        observation, reward, terminated, truncated, _ = env.step(sample(env))
        rewards.append(float(reward))
        seen.append((observation, float(reward), terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset())
            rewards = []
    return seen, np.array(rewards)


def started(env, seed=3):
    env.action_space.seed(seed)
    env.reset(seed=seed)
    return env


def brought_back(state, rewards, *spec):
    """Return a fresh environment at the same moment."""
    fresh = recorded(*spec)
    assert fresh.restore_episode(state, rewards) is None
    return fresh


def assert_goes_on_alike(env, fresh, n_steps):
    """Act alike in both, and compare all that is seen."""
    for part in (env, fresh):
        part.action_space.seed(0)
    assert_same_tree(play(env, n_steps)[0], play(fresh, n_steps)[0])


@pytest.mark.parametrize("n_steps", [0, 5, 8, 21], ids="after {} steps".format)
@pytest.mark.parametrize("case", list(CASES))
def test_a_fresh_environment_goes_on_from_the_same_moment(case, n_steps):
    env = started(recorded(*CASES[case]))
    _, rewards = play(env, n_steps)
    state = unpack(pack(env.episode_state()))
    assert_goes_on_alike(env, brought_back(state, rewards, *CASES[case]), 25)


def test_thousands_of_steps_are_brought_back():
    env = started(recorded("tests/TinyEndless-v0"))
    _, rewards = play(env, 9000)
    state = env.episode_state()
    assert state["episode"]["actions"].shape == (9000, 1)
    fresh = brought_back(state, rewards, "tests/TinyEndless-v0")
    assert_same_tree(fresh.episode_state(), state)
    assert_goes_on_alike(env, fresh, 10)


def test_an_environment_that_was_never_reset_has_no_episode_but_its_seeds():
    env = recorded("tests/TinyReach-v0")
    state = env.episode_state()
    assert state["episode"] is None
    fresh = recorded("tests/TinyReach-v0")
    assert fresh.restore_episode(state, np.array([])) is None
    assert_same_tree(env.reset()[0], fresh.reset()[0])


def test_seeds_that_were_set_for_the_next_episodes_are_brought_back():
    env = started(recorded("tests/TinyReach-v0"))
    env.set_episode_seeds([11, 12])
    fresh = recorded("tests/TinyReach-v0")
    fresh.restore_episode(env.episode_state(), np.array([]))
    fresh.reset()
    first = fresh.episode_seed
    fresh.reset()
    assert (first, fresh.episode_seed) == (11, 12)


def test_an_action_that_the_environment_changes_is_recorded_as_it_was_given():
    class Greedy(TinyReach):
        def step(self, action):
            result = super().step(action)
            action[:] = 99.0
            return result

    env = RecordedEpisodes(Greedy())
    env.reset(seed=1)
    env.step(np.array([0.5], np.float32))
    assert env.episode_state()["episode"]["actions"].tolist() == [[0.5]]


def test_a_state_does_not_change_while_the_episode_goes_on():
    env = started(recorded("tests/TinyEndless-v0"))
    play(env, 4100)
    state = env.episode_state()
    before = pack(state)
    play(env, 5)
    assert pack(state) == before


# What differs is told


class _Other(TinyReach):
    """Differs from TinyReach in one respect from some step on."""

    def __init__(self, what, at):
        super().__init__()
        self.what, self.at = what, at

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps >= self.at:
            reward += self.what == "reward"
            observation[0] += self.what == "observation"
            terminated = self.what == "end"
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("what", "at", "told"),
    [
        ("reward", 2, "the reward of step 2 of the episode differs"),
        ("observation", 5, "the observation after 5 steps of the episode differs"),
        ("end", 3, "the episode ends at step 3 of 5"),
    ],
)
def test_a_difference_is_told(what, at, told):
    env = started(RecordedEpisodes(TinyReach()))
    _, rewards = play(env, 5)
    other = RecordedEpisodes(_Other(what, at))
    assert other.restore_episode(env.episode_state(), rewards) == told


class _Double(TinyReach):
    def _observe(self):
        return super()._observe().astype(np.float64)


@pytest.mark.parametrize(("kind", "later"), [(TinyReach, 1), (_Double, 0)])
def test_another_first_observation_is_told_also_of_another_type(kind, later):
    state = started(RecordedEpisodes(TinyReach())).episode_state()
    state["episode"]["seed"] += later
    problem = RecordedEpisodes(kind()).restore_episode(state, np.array([]))
    assert problem == "the observation after 0 steps of the episode differs"


# Environments that can be put into a state


def robot(*overrides):
    return make_env(make_config("env=cartpole_bullet", *overrides).env, recorded=True)


def test_our_robot_is_put_back_by_its_state_and_keeps_no_actions():
    env = started(robot())
    _, rewards = play(env, 10)
    state = unpack(pack(env.episode_state()))
    assert env.has_state
    assert state["episode"]["actions"] is None
    fresh = robot()
    assert fresh.restore_episode(state, rewards) is None
    assert_same_tree(fresh.episode_state(), state)
    assert_goes_on_alike(env, fresh, 40)


def test_a_robot_that_comes_out_otherwise_is_told():
    env, other = started(robot()), robot("env.kwargs={force_n: 5.0}")
    _, rewards = play(env, 10)
    problem = other.restore_episode(env.episode_state(), rewards)
    assert problem.startswith("the environment refuses its state: After 10 steps the sensors of")


@pytest.mark.parametrize(
    "wrapper", ["mask_observation:{hidden: [1]}", "support.tiny_envs.Doubled:{factor: 2.0}"]
)
def test_only_a_robot_with_wrappers_that_are_known_is_put_back_by_its_state(wrapper):
    wrapped = f"env.wrappers=[{{{wrapper}}}]"
    env, fresh = started(robot(wrapped)), robot(wrapped)
    assert env.has_state == wrapper.startswith("mask")
    _, rewards = play(env, 10)
    state = env.episode_state()
    assert (state["episode"]["actions"] is None) == env.has_state
    assert fresh.restore_episode(state, rewards) is None
    assert_goes_on_alike(env, fresh, 20)


class _Settable(TinyEndless):
    """Can be put into a state, by its own account."""

    exact_state = True
    refuses = False

    def state_dict(self):
        return {"point": self.point, "goal": self.goal, "steps": self.steps}

    def load_state_dict(self, state):
        if self.refuses:
            raise ValueError("state=... is of another robot")
        vars(self).update(state)


def test_a_refused_state_is_told():
    env, fresh = started(RecordedEpisodes(_Settable())), RecordedEpisodes(_Settable())
    fresh.unwrapped.refuses = True
    problem = fresh.restore_episode(env.episode_state(), np.array([]))
    assert problem == "the environment refuses its state: state=... is of another robot"


def test_a_state_for_an_environment_that_takes_none_any_more_is_told():
    env = started(RecordedEpisodes(_Settable()))
    problem = RecordedEpisodes(TinyReach()).restore_episode(env.episode_state(), np.array([]))
    assert problem == "the environment has no state_dict any more"


def test_the_elapsed_steps_of_a_time_limit_come_back_with_the_state():
    def limited():
        return RecordedEpisodes(gym.wrappers.TimeLimit(_Settable(), 6))

    env, fresh = started(limited()), limited()
    play(env, 4)
    fresh.restore_episode(env.episode_state(), np.array([]))
    assert [fresh.step(sample(fresh))[3] for _ in range(2)] == [False, True]

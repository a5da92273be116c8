"""The example of docs/own_robot.md: R2D2 can do what it is paid for, and is paid for doing it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlzoo_plus.testing.robot_contract import check_same_numbers
from robots.vec_env import RobotVecEnv

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "own_robot"))

from r2d2_robot import REACHED_M, R2D2Env


@pytest.fixture
def env():
    """Return the environment, closed after the test."""
    env = R2D2Env()
    yield env
    env.close()


def steer(observation):
    """Return what a person would do: turn to the mark, then drive to it, and look at it."""
    distance, ahead, left, seen_ahead, seen_left = observation[:5]
    if distance < 0.1:
        return np.zeros(3)
    turn = np.clip(1.5 * np.arctan2(left, ahead), -1.0, 1.0) if distance > 0.2 else 0.0
    head = np.clip(np.arctan2(seen_left, seen_ahead), -1.0, 1.0)
    return np.array([min(2.0 * distance, 1.0) * max(ahead, 0.0), turn, head])


def play(env, act, seed):
    """Play an episode; return the sum of its rewards and its last information."""
    observation, _ = env.reset(seed=seed)
    total, done, info = 0.0, False, {}
    while not done:
        observation, reward, terminated, truncated, info = env.step(act(observation))
        total, done = total + reward, terminated or truncated
    return total, info


def test_it_passes_the_checker_of_gymnasium(env):
    check_env(env, skip_render_check=True)


def test_steering_by_hand_reaches_every_mark_and_is_paid_for_it(env):
    for seed in range(6):
        steered, info = play(env, steer, seed)
        assert info["is_success"]
        still, info = play(env, lambda _: np.zeros(3), seed)
        assert not info["is_success"]
        assert steered > 1.3 * still


@pytest.mark.parametrize(("action", "entry"), [((1, 0, 0), 5), ((0, 1, 0), 6), ((0, 0, 1), 9)])
def test_actions_drive_ahead_turn_left_and_turn_the_head_left(env, action, entry):
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        observation, *_ = env.step(np.array(action, float))
    assert observation[entry] > 0.3
    others = {5, 6} - {entry}
    assert all(abs(observation[other]) < 0.2 for other in others)


def test_marks_lie_all_around_within_reach(env):
    marks = []
    for seed in range(40):
        env.reset(seed=seed)
        marks.append(env.state.memory["mark"])
    distances = np.linalg.norm(marks, axis=1)
    assert distances.min() > 1.0 > REACHED_M
    assert distances.max() <= 2.5
    assert (np.min(marks, axis=0) < -0.5).all()
    assert (np.max(marks, axis=0) > 0.5).all()


def test_a_robot_on_its_back_ends_the_episode(env):
    env.reset(seed=0)
    env.simulation.reset_base(env.robot.body, (0, 0, 0.4), (0.7071, 0, 0, 0.7071))
    assert env.step(np.zeros(3))[4]["end_reason"] == "fell"


def test_many_worlds_give_the_numbers_of_one():
    together = RobotVecEnv([R2D2Env(episode_s=1.0) for _ in range(2)])
    singles = [R2D2Env(episode_s=1.0) for _ in range(2)]
    check_same_numbers(together, singles, 30)
    for env in (together, *singles):
        env.close()

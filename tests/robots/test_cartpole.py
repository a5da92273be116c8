"""The cart-pole: its task for one world and for many, and its options."""

import numpy as np
import pytest
from continuing import episode
from gymnasium import spaces

from robots.cartpole import CartPoleBalance, SimpleRobotEnv
from robots.sensors import State
from robots.vec_env import RobotVecEnv

ENVS = ["robots/CartPoleBalance-v0"]


def balance(observation):
    """Return the push of a hand-made linear controller."""
    x, v, sine, _, w = observation
    return np.array([x + v + 10.0 * sine + 2.0 * w])


@pytest.mark.parametrize("discrete", [False, True])
def test_a_good_controller_reaches_98_percent_of_the_maximum_return(discrete):
    env = SimpleRobotEnv(discrete=discrete)

    def controller(observation):
        push = balance(observation)
        return int(push[0] > 0) if discrete else push

    episode_return, steps, info = episode(env, controller, seed=1)
    assert steps == 500
    assert info["is_success"]
    assert info["end_reason"] == "time_limit"
    assert 490 <= episode_return <= 500


def test_a_falling_pole_terminates_without_success(env):
    _, steps, info = episode(env, lambda _: np.ones(1))
    assert steps < 500
    assert info["is_success"] is False
    assert info["end_reason"] == "pole_fell"


def test_of_several_ends_at_once_the_first_one_is_reported():
    worlds = RobotVecEnv([SimpleRobotEnv(), SimpleRobotEnv()])
    worlds.reset(seed=0)
    for _ in range(200):
        infos = worlds.step_worlds(np.array([[1.0], [0.0]])).infos
    assert (abs(worlds.state.joint_position[0]) > [2.4, 0.2095]).all()
    assert [info["end_reason"] for info in infos] == ["pole_fell", "pole_fell"]
    assert [info["is_success"] for info in infos] == [False, False]
    assert [set(info["episode_terms"]) for info in infos] == [{"alive", "centred", "effort"}] * 2


def test_discrete_actions_push_with_full_force_to_either_side():
    env = SimpleRobotEnv(discrete=True)
    assert env.action_space == spaces.Discrete(2)
    velocities = []
    for action in (0, 1):
        env.reset(seed=0)
        velocities.append(env.step(action)[0][1])
    assert velocities[0] < -0.1
    assert velocities[1] > 0.1


def test_actions_beyond_the_space_are_clipped(env):
    observations = []
    for push in (1.0, 5.0):
        env.reset(seed=0)
        observations.append(env.step(np.array([push], np.float32))[0])
    assert np.array_equal(*observations)


def test_episode_length_follows_episode_s():
    assert episode(SimpleRobotEnv(episode_s=0.2), balance)[1] == 10


def test_reward_weights_merge_into_the_defaults():
    assert CartPoleBalance({"effort": 0.02}).weights == {
        "alive": 0.5,
        "centred": 0.5,
        "effort": 0.02,
    }


def test_misspelt_reward_term_gets_did_you_mean():
    with pytest.raises(ValueError, match=r"Did you mean 'effort'\?"):
        CartPoleBalance({"efort": 0.02})


def test_worlds_may_have_more_than_one_leading_dimension():
    task = CartPoleBalance()
    worlds = State(np.full((2, 3, 2), 0.1), np.zeros((2, 3, 2)))
    assert task.observation(worlds).shape == (2, 3, 5)
    assert {v.shape for v in task.reward_terms(worlds, np.zeros((2, 3, 1))).values()} == {(2, 3)}
    assert {v.shape for v in task.terminations(worlds).values()} == {(2, 3)}

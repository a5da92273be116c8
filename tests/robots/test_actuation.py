"""Latency, the rate limit and the strength of motors."""

import numpy as np
import pytest
from continuing import actions_for, cartpole, play

from robots.conditions import Actuation

PUSH = np.array([1.0])
REST = np.array([0.0])


def velocities(env, actions):
    """Return the cart's velocity after each action of an episode."""
    env.reset(seed=0)
    speeds = []
    for action in actions:
        env.step(action)
        speeds.append(float(env.state.joint_velocity[0]))
    return speeds


def test_a_late_action_moves_the_robot_as_the_same_action_given_later():
    late = velocities(cartpole(latency=2), [PUSH, PUSH, REST, REST, REST])
    prompt = velocities(cartpole(), [REST, REST, PUSH, PUSH, REST])
    assert late == prompt


def test_the_reward_is_for_the_action_that_was_chosen_not_for_the_one_that_arrives():
    env = cartpole(latency=3, max_action_rate=0.1)
    env.reset(seed=0)
    assert env.step(PUSH)[4]["reward_terms"]["effort"] == -0.01
    assert env.step(REST)[4]["reward_terms"]["effort"] == 0.0


def test_an_action_arrives_no_faster_than_its_rate_allows():
    actuation = Actuation(2, max_rate=0.25)
    arrived = [actuation.apply(np.array([1.0, -0.2])).tolist() for _ in range(5)]
    assert arrived == [[0.25, -0.2], [0.5, -0.2], [0.75, -0.2], [1.0, -0.2], [1.0, -0.2]]
    assert actuation.apply(np.array([-1.0, 0.0])).tolist() == [0.75, 0.0]


def test_a_late_action_is_limited_when_it_arrives():
    actuation = Actuation(1, latency=1, max_rate=0.5)
    arrived = [float(actuation.apply(PUSH)[0]) for _ in range(4)]
    assert arrived == [0.0, 0.5, 1.0, 1.0]


def test_a_new_episode_begins_with_nothing_under_way():
    env = cartpole(latency=2, max_action_rate=0.3)
    actions = actions_for(env, 20)
    env.reset(seed=1)
    first = play(env, actions)
    env.reset(seed=1)
    assert play(env, actions) == first


def test_motors_of_half_the_strength_push_as_half_the_action():
    weak = velocities(cartpole(motor_strength=0.5), [PUSH] * 5)
    assert weak == velocities(cartpole(), [0.5 * PUSH] * 5)


def test_a_discrete_action_can_be_late():
    one, zero = np.int64(1), np.int64(0)
    late = velocities(cartpole(discrete=True, latency=1), [one, zero, one])
    # Before the first action arrives there is no force, which no discrete action stands for.
    assert abs(late[0]) < 0.06 < abs(late[1])
    assert late[2] < late[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": -1}, "latency=-1 must be a whole number of control steps"),
        ({"latency": 1.5}, r"latency=1\.5 must be a whole number"),
        ({"max_action_rate": 0.0}, "max_action_rate=0 would never let an action change"),
        ({"max_action_rate": "fast"}, "max_action_rate='fast' must be a number"),
        ({"motor_strength": -0.5}, r"motor_strength=-0\.5 must be a number of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_fix(options, message):
    with pytest.raises(ValueError, match=f"{message}.*Set for example"):
        cartpole(**options)

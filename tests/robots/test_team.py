"""Several robots in one world."""

import numpy as np
import pytest
from continuing import KUKA, Wander, arm_and_car, husky

from robots.env import BaseRobotEnv
from robots.robot import ActionMode, RobotSpec
from robots.world import WorldSpec


def test_the_first_entries_of_an_action_drive_the_first_robot_and_the_rest_the_other():
    env = arm_and_car()
    assert env.action_space.shape == (11,)
    env.reset(seed=0)
    arm_before = env.state.joint_position.copy()
    forward = np.concatenate([np.zeros(7), np.ones(4)])
    for _ in range(30):
        env.step(forward)
    (moved,) = env.state.partners
    assert moved.base_position[0] > 1.8
    assert abs(env.state.joint_position - arm_before).max() < 0.1
    assert env.state.object_position.shape == (1, 3)


def test_robots_of_one_world_meet():
    env = arm_and_car()
    env.reset(seed=0)
    backward = np.concatenate([np.zeros(7), -np.ones(4)])
    for _ in range(39):
        env.step(backward)
    # The car pushes the ball towards the arm.
    assert env.state.object_position[0, 0] < 0.8


@pytest.mark.parametrize(
    ("mode", "message"),
    [(ActionMode.TORQUE, "torques cannot share"), (ActionMode.PD, "pd cannot share a world")],
)
def test_modes_that_cannot_share_a_world_are_refused(mode, message):
    arm = RobotSpec(KUKA, action_scale=1.0, action_mode=mode, position_gain=1.0, velocity_gain=1.0)
    with pytest.raises(ValueError, match=message):
        BaseRobotEnv(arm, Wander(7), WorldSpec(partners=(husky(),)))

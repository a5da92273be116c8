"""The arm that grasps and lifts: its task, its gripper, and a controller made by hand."""

import numpy as np
import pytest
from continuing import episode
from support.native import needs_plugin

from benchmarks.controllers import lift_by_hand
from robots.engines.bullet.native import program_of
from robots.engines.bullet.simulation import BulletSimulation
from robots.franka_lift import (
    CUBE_HALF_EDGE_M,
    GOAL_HEIGHT_M,
    WORKSPACE,
    FrankaLiftEnv,
    FrankaLiftTask,
)
from robots.robot import Robot, RobotSpec

ENVS = [FrankaLiftEnv]


def test_a_hand_made_controller_lifts_the_cube_to_its_goal(env):
    results = [episode(env, lift_by_hand, seed) for seed in range(6)]
    assert all(info["is_success"] for *_, info in results)
    assert all(68 < episode_return < 80 for episode_return, *_ in results)


def test_a_push_with_closed_fingers_lifts_nothing(env):
    def closed(observation):
        return np.array([*lift_by_hand(observation)[:3], -1.0])

    episode_return, _, info = episode(env, closed)
    assert info["is_success"] is False
    assert episode_return < 30
    assert env.state.object_position[0, 2] < 2 * CUBE_HALF_EDGE_M


def test_cubes_and_goals_lie_in_the_workspace_of_the_hand():
    task, rng = FrankaLiftTask(None, 0.04), np.random.default_rng(0)
    low, high = np.array(WORKSPACE)
    starts = [task.sample_initial_state(rng) for _ in range(500)]
    goals = np.array([start.memory["goal"] for start in starts])
    cubes = np.array([start.object_position[0] for start in starts])
    assert ((low[:2] < cubes[:, :2]) & (cubes[:, :2] < high[:2])).all()
    assert ((low < goals) & (goals < high)).all()
    assert GOAL_HEIGHT_M[0] <= goals[:, 2].min() < goals[:, 2].max() <= GOAL_HEIGHT_M[1]


def test_last_entry_of_the_action_opens_and_closes_both_fingers_alike(env):
    env.reset(seed=0)
    for action, opening in ((-1.0, 0.0), (1.0, 0.04), (0.0, 0.02)):
        for _ in range(12):
            env.step(np.array([0.0, 0.0, 0.2, action]))
        fingers = env.state.joint_position[7:]
        assert fingers == pytest.approx([opening, opening], abs=2e-3)


def test_fingers_are_coupled_when_one_is_held_back(env):
    env.reset(seed=3)
    for _ in range(80):
        observation = env.task.observation(env.state)
        env.step(np.clip(lift_by_hand(observation), -1, 1))
        left, right = env.state.joint_position[7:]
        assert abs(left - right) < 0.004


def test_a_weaker_gripper_is_part_of_the_motors_strength(env):
    env.robot.drive.set_strength(0.5)
    arm, gripper = env.robot.drive.drives
    assert arm.motors.forces == [43.5] * 4 + [6.0] * 3
    assert gripper.strength == 0.5
    assert gripper.motors.forces == [10.0, 10.0]


@needs_plugin
def test_the_gripper_is_commanded_natively(env):
    commands, _ = program_of(env.world)
    assert commands is not None


def test_a_gripper_of_joints_without_limits_is_refused():
    simulation = BulletSimulation()
    spec = RobotSpec("husky/husky.urdf", action_scale=1.0, gripper=".*_wheel")
    with pytest.raises(ValueError, match="the fingers need limits"):
        Robot(simulation, spec)


def test_tolerance_must_be_positive():
    with pytest.raises(ValueError, match="must be positive"):
        FrankaLiftTask(None, 0.0)

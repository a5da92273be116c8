"""The reaching arm: its goals, its actions and its arm."""

import numpy as np
import pybullet
import pytest

from robots.kuka_reach import (
    GOAL_ANGLE_RAD,
    GOAL_HEIGHT_M,
    GOAL_RADIUS_M,
    REST,
    SPEEDS_RAD_S,
    START_NOISE_RAD,
    TORQUES_N_M,
    KukaReachEnv,
    KukaReachTask,
)

ENVS = [KukaReachEnv]


def joints_at(env, goal):
    """Return joint positions that bring the flange to a goal [rad], shape (7,)."""
    env.reset(seed=0)
    simulation, body = env.simulation, env.robot.body
    solution = REST
    for _ in range(30):  # The solver starts from the present joints and goes a part of the way.
        simulation.reset_joints(body, range(7), solution, [0.0] * 7)
        solution = simulation.bind(pybullet.calculateInverseKinematics)(
            body, 6, goal.tolist(), maxNumIterations=100, residualThreshold=1e-6
        )
    return np.array(solution)


def test_every_goal_is_within_reach_and_joint_limits(env):
    rng = np.random.default_rng(0)
    limits = np.array([(joint.lower, joint.upper) for joint in env.robot.joints])
    for _ in range(40):
        goal = env.task.sample_initial_state(rng).memory["goal"]
        solution = joints_at(env, goal)
        env.simulation.reset_joints(env.robot.body, range(7), solution, [0.0] * 7)
        flange = env.simulation.bind(pybullet.getLinkState)(
            env.robot.body, 6, computeForwardKinematics=1
        )[4]
        assert flange == pytest.approx(goal, abs=0.01)
        assert (limits[:, 0] <= solution).all()
        assert (solution <= limits[:, 1]).all()


def test_driving_the_joints_to_a_solution_succeeds_in_every_episode(env):
    for seed in range(10):
        env.reset(seed=seed)
        solution = joints_at(env, env.state.memory["goal"])
        env.reset(seed=seed)
        for _ in range(env.max_episode_steps):
            error = solution - env.state.joint_position
            _, _, terminated, truncated, info = env.step(error / 0.06)
        assert truncated
        assert not terminated
        assert info["is_success"]


def test_goals_fill_the_part_of_a_hollow_cylinder_that_is_stated(env):
    rng = np.random.default_rng(0)
    goals = np.array([env.task.sample_initial_state(rng).memory["goal"] for _ in range(2000)])
    radius, angle = np.hypot(goals[:, 0], goals[:, 1]), np.arctan2(goals[:, 1], goals[:, 0])
    for values, low, high in (
        (radius, *GOAL_RADIUS_M),
        (angle, -GOAL_ANGLE_RAD, GOAL_ANGLE_RAD),
        (goals[:, 2], *GOAL_HEIGHT_M),
    ):
        width = high - low
        assert low <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high


def test_an_episode_starts_at_rest_near_the_rest_position(env):
    observation, _ = env.reset(seed=3)
    joints = observation["observation"]
    assert 0 < np.abs(joints[:7] - REST).max() <= START_NOISE_RAD
    assert not joints[7:].any()


def test_each_entry_of_an_action_turns_its_own_joint(env):
    for joint in range(7):
        env.reset(seed=0)
        before = env.state.joint_position
        env.step(np.eye(7)[joint])
        turned = env.state.joint_position - before
        # In each of six physics steps the motor mends a fifth of the error, as fast as it can turn.
        left = 0.1
        for _ in range(6):
            left -= min(0.2 * left, SPEEDS_RAD_S[joint] / 120)
        assert turned[joint] == pytest.approx(0.1 - left, abs=5e-3)
        assert np.abs(np.delete(turned, joint)).max() < 5e-3


def test_motors_keep_to_the_data_sheet_whatever_the_actions(env):
    read = env.simulation.joint_reader(env.robot.body, env.robot.drive.motors.indices, True)
    seen = []

    def step():
        for _ in range(6):
            env.simulation.substep()
            seen.append(np.reshape(read(), (3, 7))[1:])

    env.simulation.step = step
    rng = np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(5):
            action = np.sign(rng.uniform(-1, 1, 7))
            for _ in range(10):
                env.step(action)
    velocity, torque = np.abs(seen).transpose(1, 0, 2)
    assert (torque <= TORQUES_N_M).all()
    # A motor at its greatest torque cannot keep its neighbours from turning its joint.
    assert (np.percentile(velocity, 99, axis=0) <= 1.05 * np.array(SPEEDS_RAD_S)).all()
    assert (velocity.max(axis=0) >= 0.99 * np.array(SPEEDS_RAD_S)).all()


def test_links_have_the_masses_of_the_file_and_inertias_of_their_size(env):
    links = env.simulation.link_dynamics(env.robot.body)
    assert [links[i].mass_kg for i in range(7)] == [4, 4, 3, 2.7, 1.7, 1.8, 0.3]
    for index in range(7):
        assert all(0 < moment < 0.1 for moment in links[index].inertia)


def test_the_reward_is_steepest_close_to_the_goal():
    task = KukaReachTask(None, 0.05)
    goals = np.array([[distance, 0.0, 0.0] for distance in (0.0, 0.05, 0.1, 0.4, 0.45)])
    at_goal, *_, far, farther = task.compute_reward(goals, np.zeros((5, 3))).tolist()
    assert at_goal == 0.0
    assert task.goal_terms(goals[2], np.zeros(3))["near"] == pytest.approx(-0.9)
    assert far - farther == pytest.approx(0.05, rel=0.01)
    assert at_goal - task.compute_reward(goals[1], np.zeros(3)) > 0.4

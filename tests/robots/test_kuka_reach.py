"""The reaching arm: its goals, its actions and its arm."""

from collections.abc import Iterator

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


@pytest.fixture
def reach() -> Iterator[KukaReachEnv]:
    """Return a reaching environment, closed after the test."""
    env = KukaReachEnv()
    yield env
    env.close()


def joints_at(env: KukaReachEnv, goal: np.ndarray) -> np.ndarray:
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


def test_every_goal_is_within_reach_and_joint_limits(reach: KukaReachEnv) -> None:
    rng = np.random.default_rng(0)
    limits = np.array([(joint.lower, joint.upper) for joint in reach.robot.joints])
    for _ in range(40):
        goal = reach.task.sample_initial_state(rng).memory["goal"]
        solution = joints_at(reach, goal)
        reach.simulation.reset_joints(reach.robot.body, range(7), solution, [0.0] * 7)
        flange = reach.simulation.bind(pybullet.getLinkState)(
            reach.robot.body, 6, computeForwardKinematics=1
        )[4]
        assert flange == pytest.approx(goal, abs=0.01)
        assert (limits[:, 0] <= solution).all()
        assert (solution <= limits[:, 1]).all()


def test_driving_the_joints_to_a_solution_succeeds_in_every_episode(reach: KukaReachEnv) -> None:
    for seed in range(10):
        reach.reset(seed=seed)
        solution = joints_at(reach, reach.state.memory["goal"])
        reach.reset(seed=seed)
        for _ in range(reach.max_episode_steps):
            error = solution - reach.state.joint_position
            _, _, terminated, truncated, info = reach.step(error / 0.06)
        assert truncated
        assert not terminated
        assert info["is_success"]


def test_goals_fill_the_part_of_a_hollow_cylinder_that_is_stated(reach: KukaReachEnv) -> None:
    rng = np.random.default_rng(0)
    goals = np.array([reach.task.sample_initial_state(rng).memory["goal"] for _ in range(2000)])
    radius, angle = np.hypot(goals[:, 0], goals[:, 1]), np.arctan2(goals[:, 1], goals[:, 0])
    for values, low, high in (
        (radius, *GOAL_RADIUS_M),
        (angle, -GOAL_ANGLE_RAD, GOAL_ANGLE_RAD),
        (goals[:, 2], *GOAL_HEIGHT_M),
    ):
        width = high - low
        assert low <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high


def test_an_episode_starts_at_rest_near_the_rest_position(reach: KukaReachEnv) -> None:
    observation, _ = reach.reset(seed=3)
    joints = observation["observation"]
    assert 0 < np.abs(joints[:7] - REST).max() <= START_NOISE_RAD
    assert not joints[7:].any()


def test_zero_action_holds_the_arm_against_gravity(reach: KukaReachEnv) -> None:
    first, _ = reach.reset(seed=0)
    for _ in range(reach.max_episode_steps):
        observation = reach.step(np.zeros(7))[0]
    assert observation["achieved_goal"] == pytest.approx(first["achieved_goal"], abs=2e-3)


def test_each_entry_of_an_action_turns_its_own_joint(reach: KukaReachEnv) -> None:
    for joint in range(7):
        reach.reset(seed=0)
        before = reach.state.joint_position
        reach.step(np.eye(7)[joint])
        turned = reach.state.joint_position - before
        # In each of six physics steps the motor mends a fifth of the error, as fast as it can turn.
        left = 0.1
        for _ in range(6):
            left -= min(0.2 * left, SPEEDS_RAD_S[joint] / 120)
        assert turned[joint] == pytest.approx(0.1 - left, abs=5e-3)
        assert np.abs(np.delete(turned, joint)).max() < 5e-3


def test_motors_keep_to_the_data_sheet_whatever_the_actions(reach: KukaReachEnv) -> None:
    read = reach.simulation.joint_reader(reach.robot.body, reach.robot.drive.motors.indices)
    seen = []

    def step() -> None:
        for _ in range(6):
            reach.simulation.substep()
            seen.append([(joint[1], joint[3]) for joint in read()])

    reach.simulation.step = step
    rng = np.random.default_rng(0)
    for seed in range(3):
        reach.reset(seed=seed)
        for _ in range(5):
            action = np.sign(rng.uniform(-1, 1, 7))
            for _ in range(10):
                reach.step(action)
    velocity, torque = np.abs(seen).transpose(2, 0, 1)
    assert (torque <= TORQUES_N_M).all()
    # A motor at its greatest torque cannot keep its neighbours from turning its joint.
    assert (np.percentile(velocity, 99, axis=0) <= 1.05 * np.array(SPEEDS_RAD_S)).all()
    assert (velocity.max(axis=0) >= 0.99 * np.array(SPEEDS_RAD_S)).all()


def test_an_action_that_is_not_a_number_is_an_error(reach: KukaReachEnv) -> None:
    reach.reset(seed=0)
    with pytest.raises(FloatingPointError, match="nan"):
        reach.step(np.full(7, np.nan))


def test_links_have_the_masses_of_the_file_and_inertias_of_their_size(reach: KukaReachEnv) -> None:
    links = reach.simulation.link_dynamics(reach.robot.body)
    assert [links[i].mass_kg for i in range(7)] == [4, 4, 3, 2.7, 1.7, 1.8, 0.3]
    for index in range(7):
        assert all(0 < moment < 0.1 for moment in links[index].inertia)


def test_the_reward_is_steepest_close_to_the_goal() -> None:
    task = KukaReachTask(None, 0.05)
    goals = np.array([[distance, 0.0, 0.0] for distance in (0.0, 0.05, 0.1, 0.4, 0.45)])
    at_goal, *_, far, farther = task.compute_reward(goals, np.zeros((5, 3))).tolist()
    assert at_goal == 0.0
    assert task.goal_terms(goals[2], np.zeros(3))["near"] == pytest.approx(-0.9)
    assert far - farther == pytest.approx(0.05, rel=0.01)
    assert at_goal - task.compute_reward(goals[1], np.zeros(3)) > 0.4

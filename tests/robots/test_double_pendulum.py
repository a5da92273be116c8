"""The double pendulum: its masses, its task, and that it can be balanced."""

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from continuing import episode

from robots.double_pendulum import FALL_HEIGHT_M, URDF, DoublePendulumBalance, tip_height
from robots.sensors import State

ENVS = ["robots/DoublePendulum-v0"]
STILL = np.zeros(3)


def numbers_of(observation):
    """Return cart, angles of both poles, and their velocities, shape (6,)."""
    x, v, sine1, cosine1, w1, sine2, cosine2, w2 = observation.astype(float)
    return np.array([x, np.arctan2(sine1, cosine1), np.arctan2(sine2, cosine2), v, w1, w2])


def step_from(env, numbers, push):
    """Return the numbers one step after the given ones."""
    x, angle1, angle2, v, w1, w2 = numbers
    robot = env.robot
    env.reset(seed=0)
    env.simulation.reset_joints(
        robot.body, [0, 1, 2], [x, angle1, angle2 - angle1], [v, w1, w2 - w1]
    )
    return numbers_of(env.step(np.array([push], np.float32))[0])


def balancing_gain(env):
    """Return the gain of a linear-quadratic regulator, shape (1, 6), from the simulation itself."""
    size = 1e-3
    basis = size * np.eye(6)
    a = np.stack([step_from(env, e, 0.0) - step_from(env, -e, 0.0) for e in basis], 1) / (2 * size)
    b = (step_from(env, np.zeros(6), 0.1) - step_from(env, np.zeros(6), -0.1))[:, None] / 0.2
    cost = np.eye(6)
    for _ in range(2000):
        gain = np.linalg.solve(np.eye(1) + b.T @ cost @ b, b.T @ cost @ a)
        cost = np.eye(6) + a.T @ cost @ (a - b @ gain)
    return gain


def test_a_linear_regulator_balances_for_the_whole_episode(env):
    gain = balancing_gain(env)
    for seed in range(3):
        total, _, info = episode(env, lambda seen: -gain @ numbers_of(seen), seed)
        assert info["end_reason"] == "time_limit"
        assert info["is_success"]
        assert 480 < total <= 500


def test_poles_left_alone_fall_within_two_seconds(env):
    _, steps, info = episode(env, lambda _: np.zeros(1))
    assert 10 < steps < 100
    assert info["end_reason"] == "poles_fell"
    assert info["is_success"] is False


def test_inertias_are_those_of_the_boxes_that_are_drawn(env):
    links = ElementTree.parse(URDF).getroot().findall("link")
    robot, simulation = env.robot, env.simulation
    dynamics = simulation.link_dynamics(robot.body)
    indices = simulation.links(robot.body)
    for link in links[1:]:
        text = link.find("visual/geometry/box").get("size")
        a, b, c = (float(edge) for edge in text.split())
        loaded = dynamics[indices[link.get("name")]]
        expected = loaded.mass_kg / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
        assert loaded.inertia == pytest.approx(expected, rel=1e-3)
    assert [dynamics[link].mass_kg for link in range(3)] == [1.0, 0.1, 0.1]


def energy_of(numbers):
    """Return the mechanical energy of cart and poles [J]; 0 when both hang at rest."""
    _, angle1, angle2, v, w1, w2 = numbers
    mass, length, inertia = 0.1, 0.6, 0.00301333
    hinge_x, hinge_z = v + length * np.cos(angle1) * w1, -length * np.sin(angle1) * w1
    half = 0.5 * length
    speeds = (
        (v + half * np.cos(angle1) * w1, -half * np.sin(angle1) * w1),
        (hinge_x + half * np.cos(angle2) * w2, hinge_z - half * np.sin(angle2) * w2),
    )
    moving = 0.5 * v * v + 0.5 * inertia * (w1 * w1 + w2 * w2)
    moving += sum(0.5 * mass * (x * x + z * z) for x, z in speeds)
    height = half * (3 * np.cos(angle1) + np.cos(angle2)) + 4 * half
    return float(moving + mass * 9.81 * height)


def test_hanging_poles_that_are_let_go_keep_their_energy(env):
    start = np.array([0.0, np.pi - 0.5, np.pi - 0.5, 0.0, 0.0, 0.0])
    step_from(env, start, 0.0)
    moved = [numbers_of(env.step(np.zeros(1, np.float32))[0]) for _ in range(250)]
    energies = np.array([energy_of(numbers) for numbers in moved])
    assert energies == pytest.approx(energy_of(start), rel=0.03)
    assert max(abs(numbers[4]) for numbers in moved) > 1.0


def test_upper_pole_is_observed_by_its_own_angle(env):
    joints = State(np.array([0.1, 0.3, -0.2]), np.array([0.4, 0.5, -0.7]))
    observed = DoublePendulumBalance().observation(joints)
    assert numbers_of(observed) == pytest.approx([0.1, 0.3, 0.1, 0.4, 0.5, -0.2], abs=1e-6)


def test_tip_height_is_both_lengths_when_upright_and_falls_with_either_pole():
    bends = (STILL, np.array([0.0, 0.5, 0.0]), np.array([0.0, 0.5, 0.5]))
    heights = [tip_height(State(position, STILL)) for position in bends]
    assert heights[0] == pytest.approx(1.2)
    assert all(low < high for high, low in pairwise(heights))
    # A bent pair may stand as high as a straight one that leans less.
    assert tip_height(State(np.array([0.0, 0.5, -0.5]), STILL)) > heights[1]


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ([0.0, 0.58, 0.0], None),
        ([0.0, 0.59, 0.0], "poles_fell"),
        ([0.0, 0.0, 0.9], "poles_fell"),
        ([-2.41, 0.0, 0.0], "cart_left_track"),
    ],
)
def test_episode_ends_when_the_tip_is_low_or_the_cart_off_the_track(position, reason):
    state = State(np.array(position), STILL)
    ends = DoublePendulumBalance().terminations(state)
    assert [name for name, ended in ends.items() if ended] == ([reason] if reason else [])
    alive = DoublePendulumBalance().reward_terms(state, np.zeros(1))["alive"]
    assert alive == (tip_height(state) >= FALL_HEIGHT_M)

"""Drives whose actions are mixed, and links without a mass."""

from typing import Any

import numpy as np
import pytest

from robots.drives import CombinedDrive, MixedDrive
from robots.engines.bullet.simulation import BulletSimulation
from robots.robot import ActionMode, Robot, RobotSpec
from robots.sensors import State
from robots.simulation import Physics

STEERING = ".*_steering_hinge_joint"
NOTHING = State(np.zeros(4), np.zeros(4))


@pytest.fixture
def simulation():
    """Return a world without a ground."""
    simulation = BulletSimulation(Physics(time_step_s=1 / 120, substeps=6, gravity_m_s2=0.0))
    return simulation


def husky(simulation, **spec):
    """Return a robot of four wheels, bolted to the world."""
    options: dict[str, Any] = {"action_scale": 10.0, "max_force": 60.0, **spec}
    return Robot(
        simulation, RobotSpec("husky/husky.urdf", action_mode=ActionMode.VELOCITY, **options)
    )


def racecar(simulation, **spec):
    """Return a car, bolted to the world, with two driven wheels and two steering hinges."""
    options: dict[str, Any] = {
        "action_scale": (20.0, 20.0, 2.0, 2.0),
        "action_mode": ActionMode.VELOCITY,
        "actuated": f".*_rear_wheel_joint|{STEERING}",
        "positioned": STEERING,
        "inertia_from_file": True,
        **spec,
    }
    return Robot(simulation, RobotSpec("racecar/racecar.urdf", **options))


def test_mixing_shares_an_action_out_among_the_joints(simulation):
    drive = husky(simulation, mixing=((1, -1), (1, 1), (0.5, 0), (0, 0.25))).drive
    assert isinstance(drive, MixedDrive)
    assert drive.n_actions == 2
    assert drive.targets(np.array([0.5, 0.2]), NOTHING) == pytest.approx([3.0, 7.0, 2.5, 0.5])


def test_mixed_shares_are_clipped_before_scaling(simulation):
    drive = husky(simulation, mixing=((1, -1), (1, 1)) * 2).drive
    assert drive.targets(np.array([1.0, 1.0]), NOTHING).tolist() == [0.0, 10.0, 0.0, 10.0]


@pytest.mark.parametrize("robot", [husky, racecar])
def test_mixing_gives_many_worlds_the_numbers_of_single_ones(simulation, robot):
    mixing = np.random.default_rng(1).normal(size=(4, 3)).tolist()
    drive = robot(simulation, mixing=mixing).drive
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    together = drive.targets(actions, State(np.zeros((50, 4)), np.zeros((50, 4))))
    for row, action in zip(together, actions, strict=True):
        assert row.tobytes() == drive.targets(action, NOTHING).tobytes()


@pytest.mark.parametrize("mixing", [((1.0, 0.0),) * 3, ((1.0, 0.0),) * 3 + ((1.0,),), ((),) * 4])
def test_mixing_of_a_wrong_shape_names_the_joints(simulation, mixing):
    with pytest.raises(ValueError, match=r"must have 4 rows.*front_left_wheel"):
        husky(simulation, mixing=mixing)


def test_mixing_passes_the_strength_on_to_the_motors(simulation):
    robot = husky(simulation, mixing=((1, -1), (1, 1)) * 2)
    robot.drive.set_strength(0.0)
    for _ in range(20):
        robot.drive.advance([10.0] * 4)
    assert simulation.joint_reader(robot.body, [2, 3, 4, 5])()[4:] == [0.0] * 4


def test_positioned_joints_reach_angles_and_the_others_speeds(simulation):
    robot = racecar(simulation)
    assert isinstance(robot.drive, CombinedDrive)
    for _ in range(40):
        robot.drive.advance([20.0, -10.0, 0.3, -0.4])
    joints = simulation.joint_reader(robot.body, [joint.index for joint in robot.actuated])()
    assert joints[4:6] == pytest.approx([20.0, -10.0], abs=0.1)
    assert joints[2:4] == pytest.approx([0.3, -0.4], abs=0.01)


def test_only_positioned_joints_keep_within_limits(simulation):
    drive = racecar(simulation).drive
    assert drive.targets(np.ones(4), NOTHING).tolist() == [20.0, 20.0, 1.0, 1.0]


def test_positioned_joints_need_velocity_mode(simulation):
    with pytest.raises(ValueError, match=r"needs action_mode=velocity, not torque"):
        racecar(simulation, action_mode=ActionMode.TORQUE)


def test_positioned_pattern_without_a_match_names_the_joints(simulation):
    with pytest.raises(ValueError, match=r"positioned='rudder'.*left_steering_hinge_joint"):
        racecar(simulation, positioned="rudder")


def test_massless_links_take_the_assumed_kilograms_away(simulation):
    masses = []
    for pattern in (None, "imu_link|.*_bumper_link"):
        body = husky(simulation, massless_links=pattern, inertia_from_file=True).body
        dynamics = simulation.link_dynamics(body)
        masses.append(sum(link.mass_kg for link in dynamics.values()))
        imu = dynamics[simulation.links(body)["imu_link"]]
    assert masses[0] - masses[1] == pytest.approx(3.0, abs=0.01)
    assert max(imu.inertia) < 1e-5


def test_massless_pattern_without_a_match_names_the_links(simulation):
    with pytest.raises(ValueError, match=r"massless_links='ghost'.*base_footprint"):
        husky(simulation, massless_links="ghost")

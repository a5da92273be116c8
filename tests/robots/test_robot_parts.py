"""Simulation, robot and reward functions on their own."""

import numpy as np
import pybullet
import pytest

from robots.engines.bullet.simulation import BulletSimulation
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, Robot, RobotSpec
from robots.sensors import Sensors, SensorSpec, State
from robots.simulation import Physics

KUKA = "kuka_iiwa/model.urdf"


@pytest.fixture
def simulation():
    """Return a world whose motors work over separate substeps."""
    simulation = BulletSimulation(Physics(time_step_s=1 / 240, substeps=12))
    yield simulation
    simulation.close()


NEEDED = {
    ActionMode.PD: {"position_gain": 20.0, "velocity_gain": 2.0},
    ActionMode.END_EFFECTOR: {"end_effector": "lbr_iiwa_link_7"},
}


def kuka(simulation, mode, scale, **spec):
    """Return an arm of seven joints."""
    options = {**NEEDED.get(mode, {}), **spec}
    return Robot(simulation, RobotSpec(KUKA, action_scale=scale, action_mode=mode, **options))


def read(simulation, robot):
    """Return the joints of a robot."""
    sensors = Sensors(simulation, robot.body, robot.joints, [], SensorSpec())
    return sensors.state(np.array(sensors.read()))


def act(simulation, robot, action):
    """Drive a robot for one step."""
    robot.drive.advance(robot.drive.targets(action, read(simulation, robot)).tolist())


class TestSimulation:
    """The PyBullet client."""

    @pytest.mark.parametrize("substeps", [1, 3, 4, 7, 12])
    def test_held_torque_equals_commanding_it_before_every_substep(self, substeps):
        held = BulletSimulation(Physics(time_step_s=1 / 240, substeps=substeps), hold_torques=True)
        single = BulletSimulation(Physics(time_step_s=1 / 240, substeps=1))
        spec = RobotSpec("cartpole.urdf", action_scale=10.0, actuated="slider_to_cart")
        held_robot, single_robot = Robot(held, spec), Robot(single, spec)
        for action in np.random.default_rng(0).uniform(-1, 1, (100, 1)):
            act(held, held_robot, action)
            for _ in range(substeps):
                act(single, single_robot, action)
            expected = read(single, single_robot)
            assert np.array_equal(read(held, held_robot).joint_position, expected.joint_position)
            assert np.array_equal(read(held, held_robot).joint_velocity, expected.joint_velocity)
        held.close()
        single.close()

    def test_restore_brings_back_a_body_that_no_joint_reset_reaches(self, simulation):
        client = simulation.client
        simulation.load_urdf("plane.urdf")
        cube = simulation.load_urdf("cube_small.urdf", position=(0, 0, 0.1), fixed_base=False)
        simulation.save()
        falls = []
        for steps in (20, 7, 20):
            simulation.restore()
            for _ in range(steps):
                simulation.step()
            falls.append(pybullet.getBasePositionAndOrientation(cube, physicsClientId=client))
        assert falls[0][0][2] < 0.05
        assert falls[0] == falls[2]

    def test_missing_urdf_is_named(self, simulation):
        with pytest.raises(FileNotFoundError, match=r"no_such\.urdf"):
            simulation.load_urdf("no_such.urdf")

    def test_time_step_must_be_positive(self):
        with pytest.raises(ValueError, match="must be positive"):
            BulletSimulation(Physics(time_step_s=0.0))

    def test_closing_twice_does_not_close_a_later_simulation(self):
        first = BulletSimulation()
        first.close()
        second = BulletSimulation()
        first.close()
        second.step()
        second.close()


class TestRobot:
    """Joints and action modes."""

    def test_reset_is_read_back(self, simulation):
        robot = kuka(simulation, ActionMode.POSITION, 0.1)
        state = InitialState(np.linspace(-0.3, 0.3, 7), np.linspace(0.7, 0.1, 7))
        robot.reset(state)
        assert np.array_equal(read(simulation, robot)[:2], state[:2])

    def test_position_action_moves_joints_to_their_targets(self, simulation):
        robot = kuka(simulation, ActionMode.POSITION, 0.5)
        action = np.linspace(-1, 1, 7)
        for _ in range(60):
            act(simulation, robot, action)
        assert read(simulation, robot).joint_position == pytest.approx(0.5 * action, abs=0.02)

    def test_position_targets_stay_within_the_joint_limits(self, simulation):
        robot = kuka(simulation, ActionMode.POSITION, 100.0)
        upper = [joint.upper for joint in robot.actuated]
        targets = robot.drive.targets(np.ones((3, 7)), State(np.zeros((3, 7)), np.zeros((3, 7))))
        assert targets.tolist() == [upper] * 3

    def test_velocity_action_reaches_its_speed(self, simulation):
        robot = kuka(simulation, ActionMode.VELOCITY, 0.4)
        for _ in range(10):
            act(simulation, robot, np.full(7, 0.5))
        assert read(simulation, robot).joint_velocity == pytest.approx(np.full(7, 0.2), abs=0.01)

    def test_motors_for_positions_keep_to_the_velocity_of_each_joint(self, simulation):
        limits = np.linspace(0.2, 0.8, 7)
        spec = {"max_velocity": tuple(limits.tolist()), "position_gain": 0.5}
        robot = kuka(simulation, ActionMode.POSITION, 1.0, **spec)
        fastest = np.zeros(7)
        for _ in range(20):
            act(simulation, robot, np.array([1.0, -1.0] * 3 + [1.0]))
            fastest = np.maximum(fastest, abs(read(simulation, robot).joint_velocity))
        assert fastest == pytest.approx(limits, rel=0.02)

    @pytest.mark.parametrize("mode", [ActionMode.PD, ActionMode.VELOCITY])
    def test_other_motors_keep_to_the_highest_velocity(self, simulation, mode):
        robot = kuka(simulation, mode, 2.0, max_velocity=0.3, max_force=1.0)
        simulation.set_gravity(0.0)
        fastest = 0.0
        for _ in range(10):
            act(simulation, robot, np.eye(7)[0])
            fastest = max(fastest, abs(read(simulation, robot).joint_velocity[0]))
        assert 0.25 < fastest < 0.4

    def test_torque_ceases_only_in_the_direction_of_a_joint_that_is_fastest(self, simulation):
        robot = kuka(simulation, ActionMode.TORQUE, 5.0, max_velocity=1.0)
        velocity = np.array([[0.9, 1.0, 1.1, -1.1, -1.1, 0.0, 9.0]] * 2)
        state = State(np.zeros((2, 7)), velocity)
        action = np.array([[1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -0.5], [-1.0] * 7])
        torques = robot.drive.targets(action, state)
        assert torques[0].tolist() == [5.0, 0.0, 0.0, 5.0, 0.0, -5.0, -2.5]
        assert torques[1].tolist() == [-5.0, -5.0, -5.0, 0.0, 0.0, -5.0, -5.0]
        alone = robot.drive.row_of_targets(action[0], State(np.zeros(7), velocity[0]))
        assert alone == torques[0].tolist()

    @pytest.mark.parametrize("limit", [0.0, -1.0, (1.0,) * 6 + (0.0,)])
    def test_a_velocity_at_which_no_motor_turns_is_refused(self, simulation, limit):
        with pytest.raises(ValueError, match=r"max_velocity=.* must be above 0"):
            kuka(simulation, ActionMode.POSITION, 1.0, max_velocity=limit)

    def test_pattern_without_a_match_names_the_joints(self, simulation):
        spec = RobotSpec("cartpole.urdf", action_scale=1.0, actuated="slider")
        with pytest.raises(ValueError, match="slider_to_cart, cart_to_pole"):
            Robot(simulation, spec)

    def test_rest_position_of_wrong_length_is_refused(self, simulation):
        with pytest.raises(ValueError, match="1 values for 7 joints"):
            Robot(simulation, RobotSpec(KUKA, action_scale=1.0, rest_position=(0.0,)))

    def test_unknown_action_mode_is_refused(self, simulation):
        with pytest.raises(ValueError, match="power"):
            Robot(simulation, RobotSpec(KUKA, action_scale=1.0, action_mode="power"))


class TestTolerance:
    """The shape of ``tolerance``."""

    @pytest.mark.parametrize("slope", ["gaussian", "linear"])
    def test_is_one_inside_the_bounds_and_falls_to_the_value_at_the_margin(self, slope):
        x = np.array([-1.0, 0.0, 1.0, 1.5, 3.0])
        values = tolerance(x, (-1.0, 1.0), margin=2.0, value_at_margin=0.3, slope=slope)
        assert values[:3].tolist() == [1.0, 1.0, 1.0]
        assert 0.3 < values[3] < 1.0
        assert values[4] == pytest.approx(0.3)

    def test_linear_slope_ends_at_zero(self):
        assert tolerance(9.0, margin=2.0, value_at_margin=0.0, slope="linear") == 0.0

    def test_without_margin_it_is_a_step(self):
        assert tolerance(np.array([0.0, 1.0, 1.01]), (0.0, 1.0)).tolist() == [1.0, 1.0, 0.0]

    def test_reversed_bounds_are_refused(self):
        with pytest.raises(ValueError, match="Swap the bounds"):
            tolerance(0.0, (1.0, 0.0))

    def test_value_at_margin_must_fit_the_slope(self):
        with pytest.raises(ValueError, match="inside"):
            tolerance(0.0, margin=1.0, value_at_margin=0.0)

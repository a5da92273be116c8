"""The Franka Panda: its arm with the hand pointing down, the table under it, and a cube on it."""

from dataclasses import replace

from robots.camera import Vector3
from robots.rendering import add_box
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.simulation import Simulation
from robots.world import ObjectSpec, WorldSpec

TIP = "panda_grasptarget"
"""Link at the point between the fingertips."""
FINGERS = "panda_finger_joint[12]"
MAX_VELOCITY_RAD_S = (2.175,) * 4 + (2.61,) * 3
"""Highest velocity of each joint, Franka's data sheet of the Panda."""
POINTING_DOWN = (1.0, 0.0, 0.0, 0.0)


def panda(
    ready: tuple[float, ...],
    workspace: tuple[Vector3, Vector3],
    step_m: float,
    max_velocity: tuple[float, ...] | None = MAX_VELOCITY_RAD_S,
) -> RobotSpec:
    """Return an arm whose actions displace the point between the fingertips; the fingers are held.

    Args:
        ready: Rest position of the seven joints and the two fingers [rad and m].
        workspace: Lowest and highest position of that point, world frame [m].
        step_m: Displacement that the action 1 asks for [m].
        max_velocity: Highest velocity of each joint [rad/s]; None: any.
    """
    return RobotSpec(
        urdf="franka_panda/panda.urdf",
        action_scale=step_m,
        action_mode=ActionMode.END_EFFECTOR,
        actuated="panda_joint[1-7]",
        position_gain=0.2,
        max_velocity=max_velocity,
        held=FINGERS,
        rest_position=ready,
        sensors=SensorSpec(links=TIP),
        end_effector=TIP,
        ik_orientation=POINTING_DOWN,
        ik_workspace=workspace,
    )


def gripping(arm: RobotSpec) -> RobotSpec:
    """Return the same arm with one more entry of the action, for the fingers, which feel touch."""
    sensors = replace(arm.sensors, contacts="panda_(left|right)finger")
    return replace(arm, held=None, gripper=FINGERS, sensors=sensors)


def table_with_cube(
    place: tuple[float, float], half_edge_m: float, mass_kg: float, friction: float
) -> WorldSpec:
    """Return a table top at height 0 with a cube on it, at 20 Hz.

    Args:
        place: Where the cube is unless an episode says otherwise, x and y [m].
        half_edge_m: Half its edge.
        mass_kg: Its mass.
        friction: Its coefficient of friction.
    """
    cube = ObjectSpec(
        size=(half_edge_m,) * 3,
        mass_kg=mass_kg,
        position=(*place, half_edge_m),
        friction=friction,
        colour=(0.20, 0.47, 0.80, 1.0),
    )
    return WorldSpec(
        time_step_s=1 / 120,
        substeps=6,
        solver_iterations=20,
        ground_friction=1.0,
        objects=(cube,),
    )


def show_table(simulation: Simulation) -> None:
    """Lay a table top under the arm, for pictures alone."""
    add_box(simulation, (0.55, 0.5, 0.001), (0.35, 0.0, 0.004), (0.76, 0.66, 0.53, 1.0))


def show_goal_square(simulation: Simulation, tolerance_m: float, place: tuple[float, float]) -> int:
    """Lay a square on which a cube's centre is within the tolerance of a goal; return its body."""
    half = 0.7 * tolerance_m
    return add_box(simulation, (half, half, 0.001), (*place, 0.0), (0.25, 0.68, 0.38, 1.0))

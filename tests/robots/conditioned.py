"""Environments whose actuation, randomization and limits are tested."""

from typing import Any

from continuing import EPISODE_S, KUKA, Wander

from robots.env import BaseRobotEnv
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.world import ObjectSpec, WorldSpec


def arm(mode: ActionMode = ActionMode.TORQUE, **options: Any) -> BaseRobotEnv:
    """Return a Kuka arm of seven joints."""
    robot = RobotSpec(
        KUKA,
        action_scale=(2.0,) * (3 if mode is ActionMode.END_EFFECTOR else 7),
        action_mode=mode,
        position_gain=20.0 if mode is ActionMode.PD else None,
        velocity_gain=2.0 if mode is ActionMode.PD else None,
        end_effector="lbr_iiwa_link_7",
    )
    return BaseRobotEnv(robot, Wander(7), episode_s=EPISODE_S, **options)


def tumbler(**options: Any) -> BaseRobotEnv:
    """Return a robot on wheels, free to move, on a floor with a ball and a box."""
    robot = RobotSpec(
        "r2d2.urdf",
        action_scale=20.0,
        action_mode=ActionMode.VELOCITY,
        actuated=".*wheel.*",
        fixed_base=False,
        base_position=(0.0, 0.0, 0.6),
        inertia_from_file=True,
        sensors=SensorSpec(base=True),
    )
    objects = (
        ObjectSpec("sphere", (0.1, 0.0, 0.0), 0.5, (0.0, 0.6, 0.1)),
        ObjectSpec("box", (0.1, 0.1, 0.1), 0.2, (0.0, 0.6, 0.4)),
    )
    world = WorldSpec(ground_friction=0.8, objects=objects)
    return BaseRobotEnv(robot, Wander(8), world, episode_s=EPISODE_S, **options)

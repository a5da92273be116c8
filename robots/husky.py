"""The Husky: a heavy robot on four wheels that turns by driving its sides at different speeds."""

from collections.abc import Mapping
from typing import Unpack

from robots.driving import START_POSITION, DriveToGoal, DrivingEnv
from robots.env import EnvOptions
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.world import WorldSpec

_WHEEL_RADIUS_M = 0.17775
_N_WHEELS = 4
# What the URDF gives its wheels; a contact multiplies it by the ground's.
_WHEEL_FRICTION = 1.0


class HuskyDriveEnv(DrivingEnv):
    """Drive the Husky to a goal at 20 Hz.

    The first entry of the action drives ahead, the second turns to the left.
    """

    def __init__(
        self,
        *,
        min_goal_m: float = 1.5,
        max_goal_m: float = 4.0,
        tolerance_m: float = 0.35,
        reward: Mapping[str, float] | None = None,
        max_speed_m_s: float = 1.0,
        max_torque_n_m: float = 60.0,
        friction: float = 0.8,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            min_goal_m: Least distance of a goal from the start [m].
            max_goal_m: Greatest distance of a goal from the start [m].
            tolerance_m: Distance from the goal that counts as success [m].
            reward: Weights of the terms ``progress``, ``goal``, ``time`` and ``change`` to change.
            max_speed_m_s: Speed of the wheels' rims at action 1 [m/s].
            max_torque_n_m: Strength of the motor of each wheel [N m].
            friction: Coefficient of friction between wheels and ground.
            options: See ``BaseRobotEnv``; ``episode_s`` is 15 by default.
        """
        super().__init__(
            RobotSpec(
                urdf="husky/husky.urdf",
                action_mode=ActionMode.VELOCITY,
                action_scale=max_speed_m_s / _WHEEL_RADIUS_M,
                max_force=max_torque_n_m,
                # Front left, front right, rear left, rear right.
                mixing=((1.0, -1.0), (1.0, 1.0), (1.0, -1.0), (1.0, 1.0)),
                base_position=START_POSITION,
                fixed_base=False,
                inertia_from_file=True,
                massless_links="base_footprint|imu_link|top_plate_link|user_rail_link|.*_bumper_link",
                sensors=SensorSpec(base=True),
            ),
            DriveToGoal(
                _N_WHEELS,
                min_goal_m=min_goal_m,
                max_goal_m=max_goal_m,
                tolerance_m=tolerance_m,
                reward=reward,
            ),
            WorldSpec(
                time_step_s=1 / 120,
                substeps=6,
                solver_iterations=20,
                ground_friction=friction / _WHEEL_FRICTION,
                # With it the Husky's turning rate would vary fivefold with its heading.
                cone_friction=False,
            ),
            **options,
        )

"""The racecar: a model car that is driven by its rear wheels and steered by its front wheels."""

from collections.abc import Mapping
from typing import ClassVar, Unpack

from robots.camera import Camera
from robots.driving import START_POSITION, DriveToGoal, DrivingEnv
from robots.env import EnvOptions
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.world import WorldSpec

_WHEEL_RADIUS_M = 0.05
_N_JOINTS = 6
# Bullet's default, which the URDF leaves its wheels; a contact multiplies it by the ground's.
_WHEEL_FRICTION = 0.5
_STEERING = ".*_steering_hinge_joint"


class RacecarDriveEnv(DrivingEnv):
    """Drive the racecar to a goal at 20 Hz.

    The first entry of the action drives ahead or back, the second steers to the left. It cannot
    turn on the spot.
    """

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.05), distance_m=2.8, pitch_deg=-32.0, fov_deg=45.0
    )

    def __init__(
        self,
        *,
        min_goal_m: float = 1.5,
        max_goal_m: float = 4.0,
        tolerance_m: float = 0.4,
        reward: Mapping[str, float] | None = None,
        max_speed_m_s: float = 2.0,
        max_torque_n_m: float = 0.5,
        max_steering_rad: float = 0.6,
        friction: float = 0.8,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            min_goal_m: Least distance of a goal from the start [m].
            max_goal_m: Greatest distance of a goal from the start [m].
            tolerance_m: Distance from the goal that counts as success [m].
            reward: Weights of the terms ``progress``, ``goal``, ``time`` and ``change`` to change.
            max_speed_m_s: Speed of the rear wheels' rims at action 1 [m/s].
            max_torque_n_m: Strength of the motor of each rear wheel [N m].
            max_steering_rad: Angle of both front wheels at action 1 [rad].
            friction: Coefficient of friction between wheels and ground.
            options: See ``BaseRobotEnv``; ``episode_s`` is 15 by default.
        """
        speed = max_speed_m_s / _WHEEL_RADIUS_M
        super().__init__(
            RobotSpec(
                urdf="racecar/racecar.urdf",
                action_mode=ActionMode.VELOCITY,
                actuated=f".*_rear_wheel_joint|{_STEERING}",
                positioned=_STEERING,
                # Left and right rear wheel, left and right steering hinge.
                action_scale=(speed, speed, max_steering_rad, max_steering_rad),
                mixing=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),
                max_force=(max_torque_n_m, max_torque_n_m, 10.0, 10.0),
                base_position=START_POSITION,
                fixed_base=False,
                inertia_from_file=True,
                sensors=SensorSpec(base=True),
            ),
            DriveToGoal(
                _N_JOINTS,
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
                cone_friction=False,
            ),
            **options,
        )

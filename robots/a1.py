"""The Unitree A1, walking."""

from collections.abc import Mapping
from typing import ClassVar, Unpack

from robots.camera import Camera
from robots.env import EnvOptions
from robots.quadruped import CommandRanges, QuadrupedEnv, Range, Stance
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec

STANCE = Stance(
    joint_position=(0.0, 0.9, -1.8) * 4,
    height_m=0.27,
    lifted=(0.0, 0.2, -0.4) * 4,
    trot=(True,) * 3 + (False,) * 6 + (True,) * 3,
    fallen_m=0.16,
    power_w=100.0,
)


class A1WalkEnv(QuadrupedEnv):
    """PyBullet's ``a1/a1.urdf``, 12.5 kg with twelve joints: hip, upper and lower leg."""

    camera: ClassVar[Camera] = Camera(
        target=(0.15, 0.0, 0.16), distance_m=1.7, yaw_deg=35.0, pitch_deg=-18.0, fov_deg=38.0
    )

    def __init__(
        self,
        *,
        forward_m_s: Range = (0.3, 0.8),
        sideways_m_s: Range = (0.0, 0.0),
        turn_rad_s: Range = (-0.5, 0.5),
        lift: float = 1.0,
        steps_hz: float = 2.5,
        action_scale_rad: float = 0.4,
        max_torque_n_m: float = 33.5,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            forward_m_s: Lowest and highest commanded velocity along the body.
            sideways_m_s: The same to the left.
            turn_rad_s: Lowest and highest commanded turn rate.
            lift: Factor on the 7 cm by which the legs step by themselves; 0: none do.
            steps_hz: Steps of each leg in a second.
            action_scale_rad: Deflection of a joint from the stance at action 1, half of it at
                the hips.
            max_torque_n_m: Strength of a joint's motor; 33.5 is the peak that Unitree states.
            reward: Weights of the terms of ``FollowVelocity`` to change.
            options: See ``BaseRobotEnv``.
        """
        super().__init__(
            RobotSpec(
                urdf="a1/a1.urdf",
                action_mode=ActionMode.POSITION,
                # Wide swings of the hips tip the robot over before it has learned anything.
                action_scale=(0.5 * action_scale_rad, action_scale_rad, action_scale_rad) * 4,
                rest_position=STANCE.joint_position,
                max_force=max_torque_n_m,
                position_gain=0.15,
                velocity_gain=1.0,
                base_position=(0.0, 0.0, STANCE.height_m),
                fixed_base=False,
                # The inertia that Bullet computes from the shapes is five times off at the thighs.
                inertia_from_file=True,
                sensors=SensorSpec(efforts=True, base=True),
            ),
            STANCE,
            commands=CommandRanges(forward_m_s, sideways_m_s, turn_rad_s),
            lift=lift,
            steps_hz=steps_hz,
            reward=reward,
            **options,
        )

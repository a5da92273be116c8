"""The Vision 60 of Ghost Robotics, walking."""

from collections.abc import Mapping
from typing import ClassVar, Unpack

from robots.camera import Camera
from robots.env import EnvOptions
from robots.quadruped import CommandRanges, QuadrupedEnv, Range, Stance
from robots.rendering import paint
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec

STANCE = Stance(
    joint_position=(0.0, 0.8, 1.6) * 4,
    height_m=0.437,
    lifted=(0.0, 0.2, 0.4) * 4,
    trot=(True,) * 3 + (False,) * 6 + (True,) * 3,
    fallen_m=0.25,
    power_w=200.0,
)


class Vision60WalkEnv(QuadrupedEnv):
    """PyBullet's ``quadruped/vision60.urdf``, 27 kg with twelve joints: hip, upper, lower leg.

    Its file numbers the joints; the order is left front, left back, right front, right back.
    """

    camera: ClassVar[Camera] = Camera(
        target=(0.15, 0.0, 0.26), distance_m=2.7, yaw_deg=35.0, pitch_deg=-18.0, fov_deg=38.0
    )

    def __init__(
        self,
        *,
        forward_m_s: Range = (0.3, 0.8),
        sideways_m_s: Range = (0.0, 0.0),
        turn_rad_s: Range = (-0.5, 0.5),
        lift: float = 0.5,
        steps_hz: float = 2.5,
        action_scale_rad: float = 0.4,
        max_torque_n_m: float = 87.5,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            forward_m_s: Lowest and highest commanded velocity along the body.
            sideways_m_s: The same to the left.
            turn_rad_s: Lowest and highest commanded turn rate.
            lift: Factor on the 8 cm by which the legs step by themselves; 0: none do.
            steps_hz: Steps of each leg in a second.
            action_scale_rad: Deflection of a joint from the stance at action 1, half of it at
                the hips.
            max_torque_n_m: Strength of a joint's motor; 87.5 is that of the legs in the file.
            reward: Weights of the terms of ``FollowVelocity`` to change.
            options: See ``BaseRobotEnv``.
        """
        super().__init__(
            RobotSpec(
                urdf="quadruped/vision60.urdf",
                action_mode=ActionMode.POSITION,
                # Wide swings of the hips tip the robot over before it has learned anything.
                action_scale=(0.5 * action_scale_rad, action_scale_rad, action_scale_rad) * 4,
                rest_position=STANCE.joint_position,
                max_force=max_torque_n_m,
                position_gain=0.15,
                velocity_gain=1.0,
                base_position=(0.0, 0.0, STANCE.height_m),
                fixed_base=False,
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

    def build_scenery(self) -> None:
        """Paint body and legs, which the file gives a colour for each side."""
        super().build_scenery()
        for name, link in self.simulation.links(self.robot.body).items():
            dark = name.startswith(("lower", "toe"))
            hip = name.startswith("hip")
            colour = (0.20, 0.47, 0.80, 1.0) if hip else (0.72, 0.75, 0.79, 1.0)
            paint(self.simulation, self.robot.body, link, (0.2, 0.2, 0.22, 1.0) if dark else colour)

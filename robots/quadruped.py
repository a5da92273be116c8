"""Quadrupeds that follow a commanded velocity: the trot they start from, and two robots."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Unpack

import numpy as np

from robots.camera import Camera
from robots.drives import Drive, WrappedDrive
from robots.env import BaseRobotEnv, EnvOptions
from robots.follow_velocity import CommandRanges, FollowVelocity, Range, Stance, smoothed
from robots.frames import columns, yaw
from robots.rendering import add_sphere, move, paint
from robots.robot import ActionMode, RobotSpec
from robots.sensors import Floats, SensorSpec, State
from robots.stepping import StepAndFollow
from robots.world import WorldSpec

FRICTION = 0.8
"""Coefficient of friction of feet and ground together."""


CORRECTION = 0.2
"""Share of a joint's deflection that the action for that joint alone can set."""
TROT, NO_GAIT = GAITS = ("trot", "none")
"""Motions that actions modulate."""
STRIDES = ("ahead", "sideways", "turning")
"""What the first actions set."""


@dataclass(frozen=True)
class Trot:
    """How the legs step on the spot, and how they swing; a row or an entry for each leg."""

    lifted: tuple[float, float, float]
    """Deflection of hip, upper and lower leg when a leg is lifted for a step [rad]."""
    to_front: float
    """Sign of the upper legs' swing that walks ahead."""
    to_left: float
    """Sign of the hips' swing that walks to the left."""
    front: tuple[float, ...]
    """1 for a front leg, -1 for a rear one."""
    right: tuple[float, ...]
    """1 for a right leg, -1 for a left one."""
    turning: tuple[float, float]
    """Shares of a full swing of hips and upper legs in the stride that turns."""

    @property
    def pair(self) -> tuple[float, ...]:
        """1 for the legs of the diagonal pair that steps first, -1 for the other."""
        signs = [f * r for f, r in zip(self.front, self.right, strict=True)]
        return tuple(signs[0] * sign for sign in signs)

    @property
    def mixing(self) -> tuple[tuple[float, ...], ...]:
        """Share of each action in each joint's deflection; see ``RobotSpec.mixing``.

        The first three actions are strides, the others corrections of one joint each.
        """
        rows = []
        of_hip, of_upper = self.turning
        for front, right, pair in zip(self.front, self.right, self.pair, strict=True):
            left, ahead = pair * self.to_left, pair * self.to_front
            hip = (0.0, left, left * front * of_hip)
            upper = (ahead, 0.0, ahead * right * of_upper)
            rows += [hip, upper, (0.0, 0.0, 0.0)]
        own = np.eye(len(rows)) * CORRECTION
        return tuple((*row, *each) for row, each in zip(rows, own.tolist(), strict=True))


class TrotDrive(WrappedDrive):
    """A trot on the spot whose strides the actions set.

    A clock lifts the two diagonal pairs of legs in turn. It also swings hips and upper legs, ahead
    while their leg is lifted and back while it stands. The first three actions are the amplitudes
    of these swings, ahead, to the left and turning; 0 steps on the spot. The others are added to
    the joints as they are. A policy that modulates a given motion learns in a fraction of the
    steps: Iscen et al. (2018, https://arxiv.org/abs/1910.02812).
    """

    def __init__(self, drive: Drive, trot: Trot, lift: float, radians_per_step: float) -> None:
        """Wrap the drive of a robot whose actions are positions, mixed by ``trot.mixing``.

        Args:
            drive: Drive of the joints.
            trot: How the legs are lifted and swing.
            lift: Factor on ``trot.lifted``; 0 keeps all feet down.
            radians_per_step: Advance of the clock in a control step.
        """
        super().__init__(drive)
        self._radians_per_step = radians_per_step
        first = np.repeat(trot.pair, 3) > 0
        # As the corrections that lift.
        lifted = lift * np.tile(trot.lifted, 4) / (CORRECTION * self.motors.scale)
        self._first_pair = lifted * first
        self._second_pair = lifted * ~first

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions [rad] within the limits, shape (..., n_joints)."""
        clock = self._radians_per_step * np.asarray(state.memory["count"])
        wave, swing = np.sin(clock)[..., None], np.cos(clock)[..., None]
        first, second = np.maximum(wave, 0.0), np.maximum(-wave, 0.0)
        lifted = first * self._first_pair + second * self._second_pair
        action = smoothed(action, state)
        strides, corrections = action[..., : len(STRIDES)], action[..., len(STRIDES) :]
        mixed = np.concatenate([swing * strides, corrections + lifted], axis=-1)
        return self.wrapped.targets(mixed, state)


class SmoothedDrive(WrappedDrive):
    """Positions around the stance, smoothed over time: no motion is given, walking is learned."""

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions [rad] within the limits, shape (..., n_joints)."""
        action = smoothed(action, state, StepAndFollow.smoothing)
        return self.wrapped.targets(action, state)


class QuadrupedEnv(BaseRobotEnv):
    """A quadruped with three joints a leg that follows a commanded velocity, at 50 Hz."""

    urdf: ClassVar[str]
    stance: ClassVar[Stance]
    trot: ClassVar[Trot]
    hip_share: ClassVar[float]
    toes: ClassVar[str]
    toe_friction: ClassVar[float]
    default_torque_n_m: ClassVar[float]
    max_velocity_rad_s: ClassVar[tuple[float, float, float]]

    def __init__(
        self,
        *,
        forward_m_s: Range = (-0.4, 0.8),
        sideways_m_s: Range = (-0.25, 0.25),
        turn_rad_s: Range = (-0.6, 0.6),
        standing: float = 0.1,
        command_s: float = 2.5,
        gait: str = TROT,
        lift: float = 1.0,
        steps_hz: float = 2.5,
        action_scale_rad: float = 0.5,
        max_torque_n_m: float | None = None,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            forward_m_s: Lowest and highest commanded velocity along the body; negative is backward.
            sideways_m_s: The same to the left.
            turn_rad_s: Lowest and highest commanded turn rate.
            standing: Share of the commands that are to stay where it is.
            command_s: Time after which the next command follows.
            gait: ``trot``: actions modulate a trot on the spot; ``none``: they set the joints.
            lift: Factor on the height to which the clock lifts the legs; 0 turns it off.
            steps_hz: Steps of each leg in a second.
            action_scale_rad: Swing of an upper leg at action 1, ``hip_share`` of it at the hips;
                without a gait the deflection of each joint.
            max_torque_n_m: Strength of a joint's motor; ``default_torque_n_m`` if None.
            reward: Weights of the terms of ``FollowVelocity``, without a gait of ``StepAndFollow``,
                to change.
            options: See ``BaseRobotEnv``.

        Raises:
            ValueError: If the gait is unknown.
        """
        if gait not in GAITS:
            raise ValueError(f"gait={gait!r} is none of {', '.join(GAITS)}. Set gait={NO_GAIT}.")
        stance = self.stance
        is_trot = gait == TROT
        hip_rad = (self.hip_share if is_trot else 1.0) * action_scale_rad
        self.steps_hz = steps_hz
        world = WorldSpec(
            time_step_s=1 / 200,
            substeps=4,
            # Bullet's 50 take two thirds longer and move the stance by 1 mm.
            solver_iterations=10,
            # Bullet multiplies the coefficients of two bodies.
            ground_friction=FRICTION / self.toe_friction,
        )
        step_s = world.time_step_s * world.substeps
        commands = CommandRanges(forward_m_s, sideways_m_s, turn_rad_s, standing, command_s)
        n_commands = math.ceil(options.get("episode_s", 10.0) / command_s)
        task = FollowVelocity if is_trot else partial(StepAndFollow, pairs=self.trot.pair)
        super().__init__(
            RobotSpec(
                urdf=self.urdf,
                action_mode=ActionMode.POSITION,
                action_scale=(hip_rad, action_scale_rad, action_scale_rad) * 4,
                mixing=self.trot.mixing if is_trot else None,
                rest_position=stance.joint_position,
                max_force=self.default_torque_n_m if max_torque_n_m is None else max_torque_n_m,
                max_velocity=self.max_velocity_rad_s * 4,
                position_gain=0.06,
                velocity_gain=0.7,
                base_position=(0.0, 0.0, stance.height_m),
                fixed_base=False,
                # Bullet's inertia, computed from the shapes, is five times off at the A1's thighs.
                inertia_from_file=True,
                sensors=SensorSpec(
                    efforts=True, base=True, links=self.toes, links_as_left=True, contacts=self.toes
                ),
            ),
            task(
                stance,
                commands,
                step_s,
                n_actions=len(self.trot.mixing[0]) if is_trot else len(stance.joint_position),
                n_commands=n_commands,
                steps_hz=steps_hz,
                reward=reward,
            ),
            world,
            **options,
        )
        # Each step asks the robot for its drive, so that this one takes effect.
        radians_per_step = 2.0 * np.pi * steps_hz * step_s
        drive = self.robot.drive
        self.robot.drive = (
            TrotDrive(drive, self.trot, lift, radians_per_step) if is_trot else SmoothedDrive(drive)
        )

    def build_scenery(self) -> None:
        """Add the ball that shows the command."""
        self._ball = add_sphere(self.simulation, 0.04, (0.0, 0.0, 0.04), (0.18, 0.62, 0.35, 1.0))

    def update_scenery(self) -> None:
        """Put the ball where the command would bring the robot in a second."""
        x, y, _ = columns(self.state.base_position)
        forward, sideways, _ = columns(self.state.memory["command"])
        heading = yaw(columns(self.state.base_orientation))
        cosine, sine = float(np.cos(heading)), float(np.sin(heading))
        x, y = x + cosine * forward - sine * sideways, y + sine * forward + cosine * sideways
        move(self.simulation, self._ball, (x, y, 0.04))


class A1WalkEnv(QuadrupedEnv):
    """The Unitree A1: PyBullet's ``a1/a1.urdf``, 12.5 kg with hip, upper and lower leg joints."""

    camera: ClassVar[Camera] = Camera(
        target=(0.15, 0.0, 0.16), distance_m=1.7, yaw_deg=35.0, pitch_deg=-18.0, fov_deg=38.0
    )
    urdf = "a1/a1.urdf"
    stance = Stance(
        joint_position=(0.0, 0.9, -1.8) * 4,
        height_m=0.27,
        fallen_m=0.16,
        power_w=100.0,
        foot_radius_m=0.02,
    )
    trot = Trot(
        lifted=(0.0, 0.2, -0.4),  # 7 cm straight up.
        to_front=1.0,
        to_left=-1.0,
        front=(1.0, 1.0, -1.0, -1.0),
        right=(1.0, -1.0, 1.0, -1.0),
        turning=(0.25, 0.25),
    )
    hip_share = 1.0
    toes = r"\w+_toe"
    toe_friction = 0.5  # Bullet's, since the file has none.
    # Both as Unitree states them.
    default_torque_n_m = 33.5
    max_velocity_rad_s = (21.0, 21.0, 21.0)


class Vision60WalkEnv(QuadrupedEnv):
    """The Vision 60 of Ghost Robotics: PyBullet's ``quadruped/vision60.urdf``, 27 kg.

    Its file numbers the joints; the order is left front, left back, right front, right back.
    """

    camera: ClassVar[Camera] = Camera(
        target=(0.15, 0.0, 0.26), distance_m=2.7, yaw_deg=35.0, pitch_deg=-18.0, fov_deg=38.0
    )
    urdf = "quadruped/vision60.urdf"
    stance = Stance(
        joint_position=(0.0, 0.8, 1.6) * 4,
        height_m=0.437,
        fallen_m=0.25,
        power_w=200.0,
        foot_radius_m=0.03,
    )
    trot = Trot(
        # 6 cm, by the knee: knees give way a little under the weight, and upper legs that help
        # would push it backward while they come down.
        lifted=(0.0, -0.04, -0.48),
        to_front=-1.0,
        to_left=-1.0,
        front=(1.0, -1.0, 1.0, -1.0),
        right=(-1.0, -1.0, 1.0, 1.0),
        turning=(0.5, 0.25),
    )
    hip_share = 0.7
    toes = r"toe\d"
    toe_friction = 3.0
    # Those of the file, but for the hips' torque of 375 N m.
    default_torque_n_m = 87.5
    max_velocity_rad_s = (8.6, 30.0, 30.0)

    def build_scenery(self) -> None:
        """Paint body and legs, which the file gives a colour for each side."""
        super().build_scenery()
        for name, link in self.simulation.links(self.robot.body).items():
            colour = (0.20, 0.47, 0.80, 1.0) if name.startswith("hip") else (0.72, 0.75, 0.79, 1.0)
            if name.startswith(("lower", "toe")):
                colour = (0.2, 0.2, 0.22, 1.0)
            paint(self.simulation, self.robot.body, link, colour)

"""Quadruped walking: the trot, the task of following a commanded velocity, and two robots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.drives import Drive, WrappedDrive
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import columns, gravity_direction, rotate_back, sum_of_squares, yaw
from robots.rendering import add_sphere, move, paint
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.task import Bools, Task, observation_of
from robots.world import WorldSpec

Range = Sequence[float]
"""Lowest and highest value that is drawn."""

MAX_MEAN_ERROR_M_S = 0.25
"""Mean distance from the commanded velocity that still counts as success."""
MAX_TILT_COSINE = 0.6
"""Cosine of the tilt at which the robot counts as fallen: 53 degrees."""


@dataclass(frozen=True)
class Stance:
    """How a quadruped stands, and when it counts as fallen."""

    joint_position: tuple[float, ...]
    """Positions of the joints that are read [rad]."""
    height_m: float
    """Height of the base's centre of mass in this stance."""
    lifted: tuple[float, ...]
    """Deflection of each joint when its leg is lifted for a step [rad]."""
    trot: tuple[bool, ...]
    """Whether each joint's leg is in the first diagonal pair to step."""
    fallen_m: float
    """Height below which the robot counts as fallen."""
    power_w: float
    """Mechanical power that counts as 1 in the reward term for it."""


class TrotDrive(WrappedDrive):
    """Adds actions to a trot on the spot: a clock lifts the two diagonal pairs of legs in turn.

    A policy starts with stepping instead of standing, the idea of Iscen et al. (2018,
    https://arxiv.org/abs/1910.02812). The clock only lifts: the actions decide where the feet go.
    """

    def __init__(self, drive: Drive, stance: Stance, lift: float, radians_per_step: float) -> None:
        """Wrap the drive of a robot whose actions are positions.

        Args:
            drive: Drive of the joints.
            stance: How the legs are lifted.
            lift: Factor on ``stance.lifted``; 0 keeps all feet down.
            radians_per_step: Advance of the clock in a control step.
        """
        super().__init__(drive)
        self._radians_per_step = radians_per_step
        first = np.array(stance.trot, np.float64)
        self._first_pair = lift * first * stance.lifted
        self._second_pair = lift * (1.0 - first) * stance.lifted

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions [rad] within the limits, shape (..., n_joints)."""
        wave = np.sin(self._radians_per_step * np.asarray(state.memory["count"]))[..., None]
        first, second = np.maximum(wave, 0.0), np.maximum(-wave, 0.0)
        lifted = first * self._first_pair + second * self._second_pair
        return self.wrapped.targets(action + lifted / self.motors.scale, state)


@dataclass(frozen=True)
class CommandRanges:
    """What velocities are commanded, in the frame of the body."""

    forward_m_s: Range = (0.3, 0.8)
    """Velocity along the body's x axis."""
    sideways_m_s: Range = (0.0, 0.0)
    """Velocity along the body's y axis, positive to the left."""
    turn_rad_s: Range = (-0.5, 0.5)
    """Turn rate about the body's z axis, positive to the left."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: If one is not a lowest and a highest value.
        """
        for name, values in vars(self).items():
            if len(values) != 2 or values[0] > values[1]:
                raise ValueError(
                    f"{name}={values} is no range. Give the lowest and the highest value, for "
                    "example [0.3, 0.8]."
                )

    def sample(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw forward and sideways velocity [m/s] and turn rate [rad/s], shape (3,)."""
        low, high = np.array([self.forward_m_s, self.sideways_m_s, self.turn_rad_s]).T
        command: NDArray[np.float64] = rng.uniform(low, high)
        return command


class FollowVelocity(Task):
    """Walk at a velocity that is drawn for the episode.

    Terms and observation are in the manner of Rudin et al. (2022,
    https://arxiv.org/abs/2109.11978), without a height map; what is wanted is rewarded by bells
    in [0, 1].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "velocity": 0.6,
        "turn": 0.2,
        "posture": 0.2,
        "vertical": 0.2,
        "rocking": 0.01,
        "power": 0.02,
        "action_change": 0.005,
    }

    def __init__(
        self,
        stance: Stance,
        commands: CommandRanges,
        radians_per_step: float,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set what is commanded.

        Args:
            stance: How the robot stands.
            commands: What velocities are drawn.
            radians_per_step: How far the clock of the steps goes in a step of control.
            reward: Weights that replace the defaults of the terms they name.
        """
        super().__init__(reward)
        self._stance = stance
        self._commands = commands
        self._rest = np.array(stance.joint_position)
        self._n_joints = len(stance.joint_position)
        self._radians_per_step = radians_per_step
        n_observations = 14 + 3 * self._n_joints
        self.observation_space = spaces.Box(-np.inf, np.inf, (n_observations,), np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw a command, and a stance whose joints are within 0.08 rad of the one at rest."""
        command = self._commands.sample(rng)
        position = self._rest + rng.uniform(-0.08, 0.08, self._n_joints)
        memory = {
            "command": command,
            "action": np.zeros(self._n_joints),
            "error_sum": np.zeros(()),
            "count": np.zeros(()),
        }
        # A little above the ground, so that no leg starts in it.
        height = self._stance.height_m + 0.02
        return InitialState(position, np.zeros(self._n_joints), (0.0, 0.0, height), memory=memory)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the action, and add up the distance from the commanded velocity."""
        return {
            "command": state.memory["command"],
            "action": action,
            "error_sum": state.memory["error_sum"] + self._velocity_error(state),
            "count": state.memory["count"] + 1.0,
        }

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        vectors = ("velocity", "angular velocity", "gravity")
        base = [f"{name} {axis}" for name in vectors for axis in "xyz"]
        command = ("command ahead", "command left", "command turning", "sin clock", "cos clock")
        of_joints = [f"{name}{of}" for of in ("", " velocity", " last action") for name in joints]
        return (*base, *command, *of_joints)

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return motion, tilt, command and clock, the joints, and the last action.

        Returns:
            Velocity [m/s], angular velocity [rad/s] and direction of gravity, each 3, the command
            [m/s, m/s, rad/s], sine and cosine of the clock, positions relative to rest [rad] and
            velocities [rad/s] of the joints, and the action of the last step; shape
            (..., 14 + 3 n_joints).
        """
        orientation = columns(state.base_orientation)
        clock = self._radians_per_step * state.memory["count"]
        return observation_of(
            *rotate_back(orientation, columns(state.base_velocity)),
            *rotate_back(orientation, columns(state.base_angular_velocity)),
            *gravity_direction(orientation),
            *columns(state.memory["command"]),
            np.sin(clock),
            np.cos(clock),
            *columns(state.joint_position - self._rest),
            *columns(state.joint_velocity),
            *columns(state.memory["action"]),
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``velocity``: 1 at the commanded velocity and 0.1 at 0.8 m/s from it; ``turn``: 1 at the
        commanded turn rate and 0.1 at 0.5 rad/s from it; ``posture``: 1 when level and at the
        height of standing; and costs, at most 0: ``vertical``: minus the squared vertical velocity,
        ``rocking``: minus the squared roll and pitch rates, ``power``: minus the power of the
        motors, ``action_change``: minus the squared change of the action.
        """
        orientation = columns(state.base_orientation)
        roll_rate, pitch_rate, turn = rotate_back(orientation, columns(state.base_angular_velocity))
        _, _, turn_command = columns(state.memory["command"])
        _, _, height = columns(state.base_position)
        _, _, vertical = columns(state.base_velocity)
        _, _, down = gravity_direction(orientation)
        level = tolerance(1.0 + down, margin=0.2)
        return {
            "velocity": tolerance(self._velocity_error(state), margin=0.8),
            "turn": tolerance(turn - turn_command, margin=0.5),
            "posture": level * tolerance(height - self._stance.height_m, margin=0.15),
            "vertical": -(vertical * vertical),
            "rocking": -(roll_rate * roll_rate + pitch_rate * pitch_rate),
            "power": -(motor_power(state) / self._stance.power_w),
            "action_change": -sum_of_squares(columns(action - state.memory["action"])),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the robot ``fell``: its base is too low or tilted too far."""
        _, _, height = columns(state.base_position)
        _, _, down = gravity_direction(columns(state.base_orientation))
        return {"fell": (height < self._stance.fallen_m) | (down > -MAX_TILT_COSINE)}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether it stayed on its feet and kept to the commanded velocity on average."""
        mean_error = state.memory["error_sum"] / state.memory["count"]
        walked: Bools = survived & (mean_error <= MAX_MEAN_ERROR_M_S)
        return walked

    def _velocity_error(self, state: State) -> Any:
        """Return the distance from the commanded horizontal velocity [m/s], shape (...)."""
        forward, sideways, _ = rotate_back(
            columns(state.base_orientation), columns(state.base_velocity)
        )
        to_forward, to_sideways, _ = columns(state.memory["command"])
        ahead, aside = forward - to_forward, sideways - to_sideways
        return np.sqrt(ahead * ahead + aside * aside)


def motor_power(state: State) -> Any:
    """Return the mechanical power of all motors [W], braking counted as driving, shape (...)."""
    total: Any = 0.0
    for power in columns(state.joint_effort * state.joint_velocity):
        total = total + abs(power)
    return total


class QuadrupedEnv(BaseRobotEnv):
    """A quadruped with three joints a leg that follows a commanded velocity, at 50 Hz."""

    urdf: ClassVar[str]
    stance: ClassVar[Stance]
    default_lift: ClassVar[float]
    default_torque_n_m: ClassVar[float]

    def __init__(
        self,
        *,
        forward_m_s: Range = (0.3, 0.8),
        sideways_m_s: Range = (0.0, 0.0),
        turn_rad_s: Range = (-0.5, 0.5),
        lift: float | None = None,
        steps_hz: float = 2.5,
        action_scale_rad: float = 0.4,
        max_torque_n_m: float | None = None,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            forward_m_s: Lowest and highest commanded velocity along the body.
            sideways_m_s: The same to the left.
            turn_rad_s: Lowest and highest commanded turn rate.
            lift: Factor on the height to which the clock lifts the legs; 0 turns it off, None is
                ``default_lift``.
            steps_hz: Steps of each leg in a second.
            action_scale_rad: Deflection of a joint from the stance at action 1, half of it at
                the hips.
            max_torque_n_m: Strength of a joint's motor; ``default_torque_n_m`` if None.
            reward: Weights of the terms of ``FollowVelocity`` to change.
            options: See ``BaseRobotEnv``.
        """
        stance = self.stance
        lift = self.default_lift if lift is None else lift
        world = WorldSpec(
            time_step_s=1 / 150,
            substeps=3,
            # Bullet's 50 take two thirds longer and move the stance by 1 mm.
            solver_iterations=10,
            ground_friction=1.0,
        )
        radians_per_step = 2.0 * np.pi * steps_hz * world.time_step_s * world.substeps
        commands = CommandRanges(forward_m_s, sideways_m_s, turn_rad_s)
        super().__init__(
            RobotSpec(
                urdf=self.urdf,
                action_mode=ActionMode.POSITION,
                # Wide swings of the hips tip the robot over before it has learned anything.
                action_scale=(0.5 * action_scale_rad, action_scale_rad, action_scale_rad) * 4,
                rest_position=stance.joint_position,
                max_force=self.default_torque_n_m if max_torque_n_m is None else max_torque_n_m,
                position_gain=0.15,
                velocity_gain=1.0,
                base_position=(0.0, 0.0, stance.height_m),
                fixed_base=False,
                # Bullet's inertia, computed from the shapes, is five times off at the A1's thighs.
                inertia_from_file=True,
                sensors=SensorSpec(efforts=True, base=True),
            ),
            FollowVelocity(stance, commands, radians_per_step, reward),
            world,
            **options,
        )
        # Each step asks the robot for its drive, so that this one takes effect.
        self.robot.drive = TrotDrive(self.robot.drive, stance, lift, radians_per_step)

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
        lifted=(0.0, 0.2, -0.4) * 4,
        trot=(True,) * 3 + (False,) * 6 + (True,) * 3,
        fallen_m=0.16,
        power_w=100.0,
    )
    default_lift = 1.0  # 7 cm.
    default_torque_n_m = 33.5  # The peak that Unitree states.


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
        lifted=(0.0, 0.2, 0.4) * 4,
        trot=(True,) * 3 + (False,) * 6 + (True,) * 3,
        fallen_m=0.25,
        power_w=200.0,
    )
    default_lift = 0.5  # 8 cm.
    default_torque_n_m = 87.5  # That of the legs in the file.

    def build_scenery(self) -> None:
        """Paint body and legs, which the file gives a colour for each side."""
        super().build_scenery()
        for name, link in self.simulation.links(self.robot.body).items():
            colour = (0.20, 0.47, 0.80, 1.0) if name.startswith("hip") else (0.72, 0.75, 0.79, 1.0)
            if name.startswith(("lower", "toe")):
                colour = (0.2, 0.2, 0.22, 1.0)
            paint(self.simulation, self.robot.body, link, colour)

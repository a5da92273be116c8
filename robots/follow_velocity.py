"""The task of following a commanded velocity on legs, with commands that change in an episode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.distributions import read_number
from robots.frames import columns, gravity_direction, sum_of_squares
from robots.rewards import tolerance
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State
from robots.task import Bools, Task, observation_of

Range = Sequence[float]
"""Lowest and highest value that is drawn."""

AXES = ("ahead", "left", "turning")
"""What is commanded, in this order."""
SETTLING_S = 1.0
"""Time after a new command that does not count for success."""
MAX_ERRORS = (0.1, 0.06, 0.15)
"""Mean errors that still count as success: forward, sideways [m/s], turn [rad/s]."""
SMOOTHING = 0.15
"""Share of the way to a new action that is gone in a control step."""
AVERAGING = 0.1
"""Share of a new velocity in its running average: it looks back about a fifth of a second."""
MAX_TILT_COSINE = 0.6
"""Cosine of the tilt at which the robot counts as fallen: 53 degrees."""


@dataclass(frozen=True)
class Stance:
    """How a legged robot stands, and when it counts as fallen."""

    joint_position: tuple[float, ...]
    """Positions of the joints that are read [rad]."""
    height_m: float
    """Height of the base's centre of mass in this stance."""
    fallen_m: float
    """Height below which the robot counts as fallen."""
    power_w: float
    """Mechanical power that counts as 1 in the reward term for it."""
    foot_radius_m: float
    """Radius of the ball at the end of a leg."""


@dataclass(frozen=True)
class CommandRanges:
    """What velocities are commanded, in the frame of the body, and for how long each."""

    forward_m_s: Range = (-0.4, 0.8)
    """Velocity along the body's x axis."""
    sideways_m_s: Range = (-0.25, 0.25)
    """Velocity along the body's y axis, positive to the left."""
    turn_rad_s: Range = (-0.6, 0.6)
    """Turn rate about the body's z axis, positive to the left."""
    standing: float = 0.1
    """Share of the commands that are to stay where it is."""
    command_s: float = 2.5
    """Time after which the next command follows [s]."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: If a range is not a lowest and a highest value, or another value is outside
                of what makes sense.
        """
        names = ("forward_m_s", "sideways_m_s", "turn_rad_s")
        for name, values in zip(names, self.ranges, strict=True):
            if len(values) != 2 or values[0] > values[1]:
                raise ValueError(
                    f"{name}={values} is no range. Give the lowest and the highest value, for "
                    "example [0.3, 0.8]."
                )
        read_number("standing", self.standing, 0.0, 1.0)
        if not self.command_s > SETTLING_S:
            raise ValueError(
                f"command_s={self.command_s} must be more than {SETTLING_S:g} s, the time to "
                "settle. Set for example 2.5."
            )

    @property
    def ranges(self) -> tuple[Range, Range, Range]:
        """Ranges of forward and sideways velocity [m/s] and turn rate [rad/s]."""
        return self.forward_m_s, self.sideways_m_s, self.turn_rad_s

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw forward and sideways velocity [m/s] and turn rate [rad/s], shape (count, 3)."""
        low, high = np.array(self.ranges, np.float64).T
        commands: NDArray[np.float64] = rng.uniform(low, high, (count, 3))
        commands[rng.random(count) < self.standing] = 0.0
        return commands


class FollowVelocity(Task):
    """Walk as commanded: forward or backward, sideways, turning, or on the spot.

    The commands of an episode are drawn at its start and follow each other at fixed times. Terms
    and observation are in the manner of Rudin et al. (2022, https://arxiv.org/abs/2109.11978),
    without a height map; what is wanted is rewarded by bells in [0, 1].

    Attributes:
        commands: What velocities are drawn.
        smoothing: Share of the way to a new action that is gone in a control step.
    """

    smoothing: ClassVar[float] = SMOOTHING
    reward_weights: ClassVar[Mapping[str, float]] = {
        "forward": 0.35,
        "sideways": 0.3,
        "turn": 0.25,
        "posture": 0.1,
        "vertical": 0.2,
        "rocking": 0.01,
        "power": 0.02,
        "action_change": 0.001,
        "slip": 0.05,
    }

    def __init__(
        self,
        stance: Stance,
        commands: CommandRanges,
        step_s: float,
        *,
        n_actions: int,
        n_commands: int = 4,
        steps_hz: float = 2.5,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set what is commanded.

        Args:
            stance: How the robot stands.
            commands: What velocities are drawn.
            step_s: Length of a control step [s].
            n_actions: Entries of an action.
            n_commands: Commands of an episode; the first follows the last.
            steps_hz: Steps of each leg in a second, the rate of the clock that is observed.
            reward: Weights that replace the defaults of the terms they name.
        """
        super().__init__(reward)
        self._stance = stance
        self.commands = commands
        self._n_actions, self._n_commands = n_actions, n_commands
        self._rest = np.array(stance.joint_position)
        self._n_joints = len(stance.joint_position)
        self._radians_per_step = 2.0 * np.pi * steps_hz * step_s
        self._command_steps = float(round(commands.command_s / step_s))
        self._settling_steps = float(round(SETTLING_S / step_s))
        n_observations = 17 + 2 * self._n_joints + n_actions
        self.observation_space = spaces.Box(-np.inf, np.inf, (n_observations,), np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw the commands, and a stance whose joints are within 0.08 rad of the one at rest."""
        schedule = self.commands.sample(rng, self._n_commands)
        position = self._rest + rng.uniform(-0.08, 0.08, self._n_joints)
        memory = {
            "schedule": schedule,
            "command": schedule[0],
            "action": np.zeros(self._n_actions),
            "velocity": np.zeros(3),
            "deviation": np.zeros(3),
            "errors": np.zeros(3),
            "n_errors": np.zeros(()),
            "count": np.zeros(()),
        }
        # A little above the ground, so that no leg starts in it.
        height = self._stance.height_m + 0.02
        return InitialState(position, np.zeros(self._n_joints), (0.0, 0.0, height), memory=memory)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the action, add up the errors, and go on to the next command when it is time."""
        memory = state.memory
        count = memory["count"]
        # Which step of its command this was, from 1 on; the reset is none.
        step = count - self._command_steps * np.floor((count - 1.0) / self._command_steps)
        is_settled = (count > 0.0) & (step > self._settling_steps)
        is_last = (count > 0.0) & (step == self._command_steps)
        measured = self.measured(state)
        deviation = memory["deviation"] + np.where(
            is_settled[..., None], measured - memory["command"], 0.0
        )
        mean_errors = abs(deviation) / (self._command_steps - self._settling_steps)
        number = np.mod(np.floor(count / self._command_steps), self._n_commands).astype(np.intp)
        command = np.take_along_axis(memory["schedule"], number[..., None, None], axis=-2)
        return {
            "schedule": memory["schedule"],
            "command": command[..., 0, :],
            "action": smoothed(action, state, self.smoothing),
            "velocity": averaged(memory["velocity"], measured),
            "deviation": np.where(is_last[..., None], 0.0, deviation),
            "errors": memory["errors"] + np.where(is_last[..., None], mean_errors, 0.0),
            "n_errors": memory["n_errors"] + is_last,
            "count": count + 1.0,
        }

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        vectors = ("velocity", "angular velocity", "gravity")
        base = [f"{name} {axis}" for name in vectors for axis in "xyz"]
        of_axes = [f"{what} {way}" for what in ("command", "average") for way in AXES]
        of_joints = [f"{name}{of}" for of in ("", " velocity") for name in joints]
        actions = [f"smoothed action {number}" for number in range(self._n_actions)]
        return (*base, *of_axes, "sin clock", "cos clock", *of_joints, *actions)

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return motion, tilt, command and clock, the joints, and the last action.

        Returns:
            Velocity [m/s], angular velocity [rad/s] and direction of gravity, each 3, the command
            [m/s, m/s, rad/s], sine and cosine of the clock, positions relative to rest [rad] and
            velocities [rad/s] of the joints, and the action of the last step; shape
            (..., 17 + 2 n_joints +
            n_actions).
        """
        clock = self._radians_per_step * state.memory["count"]
        velocity, angular_velocity = state.base_motion
        return observation_of(
            *velocity,
            *angular_velocity,
            *gravity_direction(columns(state.base_orientation)),
            *columns(state.memory["command"]),
            *columns(state.memory["velocity"]),
            np.sin(clock),
            np.cos(clock),
            *columns(state.joint_position - self._rest),
            *columns(state.joint_velocity),
            *columns(state.memory["action"]),
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``forward``: 1 where the average is the commanded velocity and 0.1 at 0.4 m/s from it;
        ``sideways``: the same, 0.1 at 0.2 m/s; ``turn``: the same, 0.1 at 0.4 rad/s; both minus a
        share of the distance, so that the way back is felt from afar; ``posture``: 1
        when level and at the height of standing; and costs, at most 0: ``vertical``: minus the
        squared vertical velocity, ``rocking``: minus the squared roll and pitch rates, ``power``:
        minus the power of the motors, ``action_change``: minus the squared distance of the action
        from the smoothed ones before, ``slip``: minus the squared speeds over the ground of the
        feet that touch it, added up.
        """
        average = averaged(state.memory["velocity"], self.measured(state))
        _, (roll_rate, pitch_rate, _) = state.base_motion
        _, _, height = columns(state.base_position)
        _, _, vertical = columns(state.base_velocity)
        _, _, down = gravity_direction(columns(state.base_orientation))
        level = tolerance(1.0 + down, margin=0.2)
        return {
            **following(*columns(average - state.memory["command"])),
            "posture": level * tolerance(height - self._stance.height_m, margin=0.15),
            "vertical": -(vertical * vertical),
            "rocking": -(roll_rate * roll_rate + pitch_rate * pitch_rate),
            "power": -(motor_power(state) / self._stance.power_w),
            "action_change": -sum_of_squares(columns(action - state.memory["action"])),
            "slip": -sum_of_squares(list(chain(*foot_slip(state, self._stance.foot_radius_m)))),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the robot ``fell``: its base is too low or tilted too far."""
        _, _, height = columns(state.base_position)
        _, _, down = gravity_direction(columns(state.base_orientation))
        return {"fell": (height < self._stance.fallen_m) | (down > -MAX_TILT_COSINE)}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether it stayed on its feet and followed its commands on every axis.

        The error of a command is the distance of the mean velocity from it, after
        ``SETTLING_S``. Its mean over the commands must be at most ``MAX_ERRORS``.
        """
        memory = state.memory
        followed: Bools = survived & (memory["n_errors"] > 0.0)
        for error, limit in zip(columns(memory["errors"]), MAX_ERRORS, strict=True):
            followed = followed & (error <= limit * memory["n_errors"])
        return followed

    @staticmethod
    def measured(state: State) -> NDArray[np.float64]:
        """Return what is commanded as it is: [m/s, m/s, rad/s], shape (..., 3)."""
        (forward, sideways, _), (_, _, turn) = state.base_motion
        return np.stack([forward, sideways, turn], axis=-1)


def averaged(before: Floats, measured: Floats) -> Floats:
    """Return the running average of a velocity, over the swaying within a step of the legs.

    Args:
        before: The average of the step before, shape (..., 3).
        measured: The velocity of this step, shape (..., 3).
    """
    after: Floats = before + AVERAGING * (measured - before)
    return after


def smoothed(action: Floats, state: State, share: float = SMOOTHING) -> Floats:
    """Return an action smoothed over time, a first-order low-pass filter, shape (..., n_actions).

    Exploration then moves the robot this way and that for a few steps, where noise that differs
    from step to step would only shake it.

    Args:
        action: In [-1, 1], shape (..., n_actions).
        state: Its memory holds the smoothed action of the step before.
        share: Share of the way to the new action that is gone in a control step.
    """
    before = state.memory["action"]
    after: Floats = before + share * (action - before)
    return after


def following(ahead: Any, aside: Any, turn: Any) -> dict[str, Any]:
    """Return the two terms for following the command.

    Args:
        ahead: Distance from the commanded forward velocity [m/s], shape (...).
        aside: The same of the sideways velocity.
        turn: The same of the turn rate [rad/s].
    """
    return {
        "forward": tolerance(ahead, margin=0.4) - 0.5 * abs(ahead),
        "sideways": tolerance(aside, margin=0.2) - abs(aside),
        "turn": tolerance(turn, margin=0.4) - 0.5 * abs(turn),
    }


def foot_slip(state: State, radius_m: float) -> list[tuple[Any, Any]]:
    """Return how fast the lowest points of the feet move over the ground while they touch it.

    Args:
        state: State of a robot that reads its feet as links, and their contacts.
        radius_m: Radius of a foot: the lowest point of a ball that rolls stands still.

    Returns:
        Velocity along x and y of each foot [m/s], 0 in the air, each of shape (...).
    """
    slips = []
    for foot, touches in enumerate(columns(state.contact)):
        x, y, _ = columns(state.link_velocity[..., foot, :])
        roll, pitch, _ = columns(state.link_angular_velocity[..., foot, :])
        slips.append((touches * (x - radius_m * pitch), touches * (y + radius_m * roll)))
    return slips


def motor_power(state: State) -> Any:
    """Return the mechanical power of all motors [W], braking counted as driving, shape (...)."""
    total: Any = 0.0
    for power in columns(state.joint_effort * state.joint_velocity):
        total = total + abs(power)
    return total

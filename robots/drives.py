"""Drives: what an action commands in each action mode, and how it reaches the motors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise, repeat
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.camera import Quaternion, Vector3
from robots.elementary import clip
from robots.sensors import Floats, State
from robots.simulation import JointInfo, Simulation


class ActionMode(StrEnum):
    """What an action commands."""

    TORQUE = "torque"
    """A torque [N m] or force [N], held over all substeps."""
    VELOCITY = "velocity"
    """A target velocity [rad/s or m/s] of the joint's motor."""
    POSITION = "position"
    """A target position [rad or m] relative to the rest position, within the joint's limits."""
    PD = "pd"
    """As ``position``, but reached by the torques of a PD controller at every physics step."""
    DELTA_POSITION = "delta_position"
    """A target position [rad or m] relative to the present one, within the joint's limits."""
    END_EFFECTOR = "end_effector"
    """A displacement of the end effector [m], by inverse kinematics; with ``ik_turns`` also a
    turn about each axis of the world [rad]."""


@dataclass
class Motors:
    """The joints that an action drives, and their properties; lists have one value a joint."""

    simulation: Simulation
    body: int
    joints: list[JointInfo]
    read_columns: list[int]
    """Columns of these joints among those that are read."""
    scale: NDArray[np.float64]
    """Meaning of the action 1."""
    centre: NDArray[np.float64]
    """Rest positions [rad or m]."""
    lower: NDArray[np.float64]
    """Lower limits [rad or m]."""
    upper: NDArray[np.float64]
    """Upper limits [rad or m]."""
    max_force: list[float]
    """Nominal strength [N m or N]."""
    position_gain: list[float] | None
    """Gain of the position error; see ``RobotSpec``."""
    velocity_gain: list[float] | None
    """Gain of the velocity error."""
    max_velocity: list[float] | None = None
    """Highest velocity that they drive to [rad/s or m/s]; None: any."""
    strength: float = 1.0
    """Factor on ``max_force``, and on torques that are commanded."""

    def __post_init__(self) -> None:
        self.forces = self.max_force

    @property
    def indices(self) -> list[int]:
        """Indices of the joints in their body."""
        return [joint.index for joint in self.joints]

    @property
    def fastest(self) -> list[float]:
        """``max_velocity``, infinite where there is none."""
        return self.max_velocity or [np.inf] * len(self.joints)

    def position_driver(self, columns: Sequence[int]) -> Callable[[list[float], list[float]], None]:
        """Return ``Simulation.position_motors`` of some columns of the joints."""
        gains = (self.position_gain, self.velocity_gain, self.max_velocity)
        chosen = ([values[i] for i in columns] if values else None for values in gains)
        indices = [self.indices[column] for column in columns]
        return self.simulation.position_motors(self.body, indices, *chosen)


class Drive(ABC):
    """Turns actions into targets, for any number of worlds, and targets into motion, for one.

    Attributes:
        n_actions: Entries of an action.
        n_targets: Length of a row of targets.
    """

    def __init__(self, motors: Motors) -> None:
        self.motors = motors
        self.n_actions = self.n_targets = len(motors.joints)

    @property
    def strength(self) -> float:
        """Factor on the torques or forces that the motors can apply, 1 by default."""
        return self.motors.strength

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors can apply."""
        self.motors.strength = strength
        self.motors.forces = [strength * force for force in self.motors.max_force]

    def targets(self, action: Floats, state: State) -> Floats:
        """Return what an action commands, in units.

        Args:
            action: In [-1, 1], shape (..., n_actions).
            state: State before the step.

        Returns:
            Torques, velocities, positions or displacements, shape (..., n_targets).
        """
        del state
        targets: Floats = action * self.motors.scale
        return targets

    def row_of_targets(self, action: Floats, state: State) -> list[float]:
        """Return ``targets`` of one world as a row of plain numbers."""
        row: list[float] = self.targets(action, state).tolist()
        return row

    @abstractmethod
    def command(self, targets: list[float]) -> None:
        """Command the motors for the next step.

        Args:
            targets: One row of ``targets``.
        """

    def advance(self, targets: list[float]) -> None:
        """Command the motors and advance the world by one step."""
        self.command(targets)
        self.motors.simulation.step()


class TorqueDrive(Drive):
    """Torques and forces; the world must have been made with ``hold_torques``.

    A joint that is as fast as its motor turns gets no torque that would make it faster; since
    torques are held over a step, it may become faster within one.
    """

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._drive = motors.simulation.torque_motors(motors.body, motors.indices)
        self._scale: list[float] = motors.scale.tolist()
        self._top = np.array(motors.fastest)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return torques and forces [N m or N]."""
        torques = super().targets(action, state)
        if self.motors.max_velocity is None:
            return torques
        top, velocity = self._top, state.joint_velocity[..., self.motors.read_columns]
        low = np.where(velocity <= -top, 0.0, -np.inf)
        return clip(torques, low, np.where(velocity >= top, 0.0, np.inf))

    def row_of_targets(self, action: Floats, state: State) -> list[float]:
        """Return ``targets`` of one world, faster than NumPy is on so few numbers."""
        if self.motors.max_velocity is not None:
            return super().row_of_targets(action, state)
        return list(map(mul, action.tolist(), self._scale))

    def command(self, targets: list[float]) -> None:
        """Apply the torques over all substeps."""
        strength = self.motors.strength
        if strength != 1.0:
            targets = [strength * target for target in targets]
        self._drive(targets)


class VelocityDrive(Drive):
    """Target velocities of the joint motors."""

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._drive = motors.simulation.velocity_motors(motors.body, motors.indices)
        self._top = np.array(motors.fastest)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target velocities within what the motors reach [rad/s or m/s]."""
        return clip(super().targets(action, state), -self._top, self._top)

    def command(self, targets: list[float]) -> None:
        """Set the motors' velocities."""
        self._drive(targets, self.motors.forces)


class PositionDrive(Drive):
    """Target positions, relative to the rest position, of the joint motors."""

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._drive = motors.position_driver(range(len(motors.joints)))

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions within the limits [rad or m]."""
        return self._within_limits(self.motors.centre + super().targets(action, state))

    def command(self, targets: list[float]) -> None:
        """Set the motors' positions."""
        self._drive(targets, self.motors.forces)

    def _within_limits(self, targets: Floats) -> Floats:
        return clip(targets, self.motors.lower, self.motors.upper)


class DeltaPositionDrive(PositionDrive):
    """Target positions relative to the present ones."""

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions within the limits [rad or m]."""
        present = state.joint_position[..., self.motors.read_columns]
        return self._within_limits(present + action * self.motors.scale)


class PdDrive(PositionDrive):
    """A PD controller: torque = position_gain * error - velocity_gain * velocity, limited.

    A joint that is as fast as its motor turns gets no torque that would make it faster. The gains
    are in N m/rad and N m s/rad, or N/m and N s/m. The world must be without ``hold_torques``.
    """

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._read = motors.simulation.joint_reader(motors.body, motors.indices)
        self._push = motors.simulation.torque_motors(motors.body, motors.indices)
        kp, kd = motors.position_gain, motors.velocity_gain
        if kp is None or kd is None:
            raise ValueError(
                f"action_mode=pd with position_gain={kp} and velocity_gain={kd}: a PD controller "
                "needs both. Set for example position_gain=50 and velocity_gain=1 [N m/rad, "
                "N m s/rad]."
            )
        self._gains = list(zip(kp, kd, motors.fastest, strict=True))

    def command(self, targets: list[float]) -> None:
        """Refuse: the controller needs the physics steps for itself.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("A PD controller acts within a step. Use advance.")

    def advance(self, targets: list[float]) -> None:
        """Run the controller at every physics step."""
        simulation, count = self.motors.simulation, len(targets)
        for _ in repeat(None, simulation.substeps):
            torques = []
            read = self._read()
            for position, velocity, target, (kp, kd, top), limit in zip(
                read[:count], read[count:], targets, self._gains, self.motors.forces, strict=True
            ):
                torque = kp * (target - position) - kd * velocity
                low = 0.0 if velocity <= -top else -limit
                high = 0.0 if velocity >= top else limit
                torques.append(min(max(torque, low), high))
            self._push(torques)
            simulation.substep()


JOINT_DRIVES: dict[ActionMode, type[Drive]] = {
    ActionMode.TORQUE: TorqueDrive,
    ActionMode.VELOCITY: VelocityDrive,
    ActionMode.POSITION: PositionDrive,
    ActionMode.PD: PdDrive,
    ActionMode.DELTA_POSITION: DeltaPositionDrive,
}
"""The modes with one entry of the action a joint."""


class EndEffectorDrive(PositionDrive):
    """Displaces the end effector by inverse kinematics, and drives the joints there."""

    def __init__(
        self,
        motors: Motors,
        link: int,
        orientation: Quaternion | None,
        turns: bool,
        workspace: tuple[Vector3, Vector3] | None,
    ) -> None:
        """Set up the solver.

        Args:
            motors: Joints that may move; scale holds the displacement of the action 1 [m].
            link: Index of the end effector.
            orientation: World orientation to keep, quaternion (x, y, z, w), or None: any.
            turns: Actions have three more entries, turns about the axes of the world.
            workspace: Lowest and highest world position that is aimed at [m], or None.
        """
        super().__init__(motors)
        self.n_actions = self.n_targets = 6 if turns else 3
        self.link = link
        self.orientation = orientation
        self.turns = turns
        self.workspace = workspace
        self.guard: Callable[[list[float]], list[float]] | None = None
        """Changes the joint positions that the solver chose [rad or m]; None leaves them."""
        self._solver = motors.simulation.inverse_kinematics(motors.body, link, motors.indices)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return displacements [m], and turns [rad].

        Raises:
            FloatingPointError: If the action is not a number: the solver would pass it on to
                every joint, and a reward that looks at an object alone would not show it.
        """
        del state
        displacement: Floats = action * self.motors.scale[: self.n_actions]
        if np.isnan(displacement).any():
            raise FloatingPointError(f"action={action} is not a number. Give values in [-1, 1].")
        return displacement

    def joint_targets(self, targets: list[float]) -> list[float]:
        """Return joint positions near the present ones that lead there [rad or m]."""
        place, facing = self._solver.pose()
        position = [here + step for here, step in zip(place, targets[:3], strict=True)]
        if self.workspace is not None:
            low, high = self.workspace
            position = [min(max(x, a), b) for x, a, b in zip(position, low, high, strict=True)]
        orientation = self.orientation
        if self.turns:
            a, b, c, d = orientation or facing
            orientation = self._solver.turned((a, b, c, d), targets[3:])
        solved = self._solver.solve(position, orientation)
        chosen: list[float] = self._within_limits(np.array(solved)).tolist()
        return chosen if self.guard is None else self.guard(chosen)

    def command(self, targets: list[float]) -> None:
        """Solve for joint positions, and drive there."""
        super().command(self.joint_targets(targets))


class CombinedDrive(Drive):
    """Target velocities for some joints and target positions for the others, as in a car."""

    def __init__(self, motors: Motors, positioned: Sequence[int]) -> None:
        """Set up the two kinds of motors.

        Args:
            motors: All joints; scale is in [rad/s or m/s], of the positioned [rad or m].
            positioned: Columns, among them, of those that are driven to positions.
        """
        super().__init__(motors)
        columns = range(len(motors.joints))
        self.positioned = list(positioned)
        self.turning = [column for column in columns if column not in self.positioned]
        held = np.isin(columns, self.positioned)
        top = np.array(motors.fastest)
        self.centre = np.where(held, motors.centre, 0.0)
        self.lower = np.where(held, motors.lower, -top)
        self.upper = np.where(held, motors.upper, top)
        turned = [motors.indices[column] for column in self.turning]
        self._turn = motors.simulation.velocity_motors(motors.body, turned)
        self._position = motors.position_driver(self.positioned)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target velocities, and target positions within the limits."""
        return clip(self.centre + super().targets(action, state), self.lower, self.upper)

    def command(self, targets: list[float]) -> None:
        """Set both kinds of motors."""
        forces = self.motors.forces
        for drive, columns in ((self._turn, self.turning), (self._position, self.positioned)):
            drive([targets[column] for column in columns], [forces[column] for column in columns])


class WrappedDrive(Drive):
    """A drive that changes actions before another drive turns them into targets."""

    def __init__(self, drive: Drive) -> None:
        super().__init__(drive.motors)
        self.wrapped = drive
        self.n_actions, self.n_targets = drive.n_actions, drive.n_targets

    def command(self, targets: list[float]) -> None:
        """Command the motors."""
        self.wrapped.command(targets)

    def advance(self, targets: list[float]) -> None:
        """Command the motors and advance the world by one step."""
        self.wrapped.advance(targets)


class MixedDrive(WrappedDrive):
    """Distributes the entries of an action among the motors of another drive.

    With the rows (1, -1) and (1, 1) for a left and a right wheel, the first entry drives ahead and
    the second turns to the left.
    """

    def __init__(self, drive: Drive, mixing: Sequence[Sequence[float]]) -> None:
        """Set the shares.

        Args:
            drive: Drive of the motors.
            mixing: Share of every entry of the action in the command of each motor, shape
                (n_motors, n_actions).

        Raises:
            ValueError: If it has a wrong number of rows, or rows of different length.
        """
        super().__init__(drive)
        widths = {len(row) for row in mixing}
        if len(mixing) != drive.n_actions or len(widths) != 1 or 0 in widths:
            names = ", ".join(joint.name for joint in drive.motors.joints)
            raise ValueError(
                f"mixing={mixing} must have {drive.n_actions} rows of one length, a column for "
                f"each entry of the action. Give one row each for: {names}."
            )
        (self.n_actions,) = widths
        self.shares = np.array(mixing, np.float64).T.copy()

    def targets(self, action: Floats, state: State) -> Floats:
        """Return the targets of the motors, whose shares are clipped to [-1, 1]."""
        # One column after the other, since a matrix product adds in another order.
        mixed: Any = action[..., :1] * self.shares[0]
        for entry in range(1, self.n_actions):
            mixed = mixed + action[..., entry : entry + 1] * self.shares[entry]
        return self.wrapped.targets(clip(mixed, -1.0, 1.0), state)


class JoinedDrive(Drive):
    """Distributes an action among drives: its first entries go to the first one, and so on."""

    def __init__(self, drives: list[Drive]) -> None:
        """Join the drives of one world; a ``PdDrive`` cannot be among them (ValueError)."""
        super().__init__(drives[0].motors)
        if any(isinstance(drive, PdDrive) for drive in drives):
            raise ValueError(
                "action_mode=pd cannot share a world with another drive: its controller acts "
                "within a step. Use action_mode=position."
            )
        self.drives = drives
        self._actions = _spans([drive.n_actions for drive in drives])
        self.target_spans = _spans([drive.n_targets for drive in drives])
        self.n_actions = self._actions[-1].stop
        self.n_targets = self.target_spans[-1].stop

    def set_strength(self, strength: float) -> None:
        """Set the factor on what all motors can apply."""
        for drive in self.drives:
            drive.set_strength(strength)

    def states(self, state: State) -> Sequence[State]:
        """Return the state that each drive is given; all the same by default."""
        return (state,) * len(self.drives)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return what an action commands, side by side, shape (..., n_targets)."""
        parts = [
            drive.targets(action[..., span], own)
            for drive, span, own in zip(self.drives, self._actions, self.states(state), strict=True)
        ]
        return np.concatenate(parts, axis=-1)

    def command(self, targets: list[float]) -> None:
        """Command all motors for the next step."""
        for drive, span in zip(self.drives, self.target_spans, strict=True):
            drive.command(targets[span])


def commanding_drive(drive: Drive) -> Drive:
    """Return the drive that commands the motors: what others wrap that change actions alone."""
    while isinstance(drive, WrappedDrive) and moves_as(drive, WrappedDrive):
        drive = drive.wrapped
    return drive


def moves_as(drive: Any, kind: type[Drive]) -> bool:
    """Return whether a drive commands and advances as a class does, whatever its targets are."""
    names = ("command", "advance", "set_strength")
    return isinstance(drive, kind) and all(
        getattr(type(drive), name) is getattr(kind, name) for name in names
    )


def commands_first(drive: Drive) -> bool:
    """Return whether a drive commands the motors before the world is stepped, as most do."""
    return type(commanding_drive(drive)).advance is Drive.advance


def _spans(widths: list[int]) -> list[slice]:
    """Return the columns of parts of these widths that lie side by side."""
    return [slice(*ends) for ends in pairwise([0, *accumulate(widths)])]

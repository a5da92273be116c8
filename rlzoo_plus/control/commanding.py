"""Turns one row of a drive's targets into commands of joints, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.control.faults import ACTION, COMMAND, Fault
from rlzoo_plus.drivers.driver import Description, Signal, Values, columns_by_name
from rlzoo_plus.errors import ConfigError
from robots.drives import (
    CombinedDrive,
    DeltaPositionDrive,
    Drive,
    EndEffectorDrive,
    JoinedDrive,
    PdDrive,
    PositionDrive,
    TorqueDrive,
    VelocityDrive,
    commanding_drive,
)
from robots.sensors import JOINT_UNITS
from robots.simulation import JointInfo
from robots.world import TeamDrive

POSITION, VELOCITY, TORQUE = "joint_position", "joint_velocity", "joint_torque"
_KINDS: dict[type[Drive], str] = {
    TorqueDrive: TORQUE,
    VelocityDrive: VELOCITY,
    PositionDrive: POSITION,
    DeltaPositionDrive: POSITION,
    PdDrive: POSITION,
}
# How far a command may be beyond the robot's limits, as a part of them: rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Part:
    """What some columns of a row of targets command."""

    kind: str  # The signal
    joints: list[JointInfo]
    of_targets: Callable[[list[float]], list[float]]  # The commands of these joints


def parts_of(drive: Drive, span: slice = slice(None)) -> Iterator[Part]:
    """Yield the parts of a drive, whose targets are in some columns of a row.

    Raises:
        ConfigError: Its targets are none of joints.
    """
    drive = commanding_drive(drive)
    joints, kind = drive.motors.joints, _KINDS.get(type(drive))
    if kind is not None:
        yield Part(kind, joints, lambda row: row[span])
    elif type(drive) is EndEffectorDrive:
        solve = drive.joint_targets
        yield Part(POSITION, joints, lambda row: solve(row[span]))
    elif type(drive) is CombinedDrive:
        for kind, columns in ((VELOCITY, drive.turning), (POSITION, drive.positioned)):
            yield Part(kind, [joints[i] for i in columns], _choosing(span, columns))
    elif isinstance(drive, JoinedDrive) and not isinstance(drive, TeamDrive):
        for one, own_span in zip(drive.drives, drive.target_spans, strict=True):
            yield from parts_of(one, own_span)
    else:
        raise ConfigError(
            f"actions of a {type(drive).__name__} are no commands of the joints of one robot. Use "
            "a task of one robot, with an action_mode of `robots.ActionMode`."
        )


def _choosing(span: slice, columns: Sequence[int]) -> Callable[[list[float]], list[float]]:
    return lambda row: [row[span][column] for column in columns]


class Commander:
    """Makes the commands that a robot takes of rows of targets.

    Attributes:
        parts: What is commanded.
        solves: Whether that needs the robot's own world to be where the robot is.
        are_positions: Whether nothing but positions is commanded.
    """

    def __init__(self, drive: Drive, robot: Description) -> None:
        """Find the commands of the robot by the names of the joints.

        Raises:
            ConfigError: The robot lacks one, has one twice, or takes it in another unit.
        """
        self.parts = list(parts_of(drive))
        self.solves = any(isinstance(one, EndEffectorDrive) for one in _leaves(drive))
        self.are_positions = all(part.kind == POSITION for part in self.parts)
        self._signals = robot.commands
        self._columns: list[list[int]] = []
        for part in self.parts:
            signal = signal_of(robot.commands, part.kind, "take", robot.robot)
            names = [joint.name for joint in part.joints]
            self._columns.append(columns_by_name(f"{part.kind} commands", names, signal.names))
            check_unit(f"{part.kind} commands", signal, part.joints)
        # What the policy does not drive: it stays where it is.
        self._rest = {kind: np.zeros(len(one.names)) for kind, one in robot.commands.items()}
        driven = {joint.name: part.kind for part in self.parts for joint in part.joints}
        for kind, signal in robot.commands.items():
            if both := [n for n in signal.names if driven.get(n, kind) != kind]:
                raise ConfigError(
                    f"{kind} commands: the robot has {', '.join(both)}, which the policy commands "
                    "otherwise. Let the driver offer one sort of command for each joint."
                )
            others = [name for name in signal.names if name not in driven]
            if kind == POSITION and others:
                columns_by_name(POSITION, others, robot.sensors[POSITION].names)

    def hold_others(self, sensors: Values, robot: Description) -> None:
        """Command joints that the policy does not drive to stay where they are now."""
        rest, measured = self._rest.get(POSITION), robot.sensors[POSITION].names
        for at, name in enumerate(() if rest is None else robot.commands[POSITION].names):
            if rest is not None and name in measured:
                rest[at] = sensors[POSITION][measured.index(name)]

    def commands(self, targets: list[float]) -> dict[str, NDArray[np.float64]]:
        """Return the commands, entries in the robot's order.

        Raises:
            Fault: One is not a number, or beyond the robot's limits.
        """
        return self._with([part.of_targets(targets) for part in self.parts])

    def at(self, positions: list[float]) -> dict[str, NDArray[np.float64]]:
        """Return the commands that drive the joints of all parts to positions."""
        ends = np.cumsum([len(part.joints) for part in self.parts])[:-1]
        return self._with([part.tolist() for part in np.split(positions, ends)])

    def _with(self, values: list[list[float]]) -> dict[str, NDArray[np.float64]]:
        found = {kind: rest.copy() for kind, rest in self._rest.items()}
        for part, columns, row in zip(self.parts, self._columns, values, strict=True):
            found[part.kind][columns] = row
        for kind, commands in found.items():
            self._check(kind, self._signals[kind], commands)
        return found

    @staticmethod
    def _check(kind: str, signal: Signal, values: NDArray[np.float64]) -> None:
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise Fault(ACTION, f"it commands {kind} {signal.names[at]} {values[at]}")
        if far := beyond(values, signal, _ROUNDING):
            raise Fault(COMMAND, f"{kind} {said(values, signal, far[0])}")


def beyond(values: NDArray[np.float64], signal: Signal, margin: float) -> list[int]:
    """Return which entries are beyond the limits by more than a part of their width.

    With a negative margin, which are within so much of them. Without an upper or a lower limit
    the width counts as 1.
    """
    count = len(signal.names)
    lower = np.full(count, -np.inf) if signal.lower is None else np.array(signal.lower)
    upper = np.full(count, np.inf) if signal.upper is None else np.array(signal.upper)
    width = np.where(np.isfinite(upper - lower), upper - lower, 1.0)
    far = (values < lower - margin * width) | (values > upper + margin * width)
    return [int(at) for at in np.flatnonzero(far)]


def said(values: NDArray[np.float64], signal: Signal, at: int) -> str:
    """Return an entry with its value and its limits."""
    lower, upper = (None if side is None else side[at] for side in (signal.lower, signal.upper))
    limits = f"{'-' if lower is None else lower} to {'-' if upper is None else upper}"
    return f"{signal.names[at]} is {values[at]:.4g}, and its limits are {limits}"


def signal_of(signals: Mapping[str, Signal], name: str, verb: str, robot: str) -> Signal:
    """Return a signal of the robot; a ConfigError names what it has if it lacks it."""
    if name not in signals:
        raise ConfigError(
            f"{robot} does not {verb} {name}, which this policy needs. It has: "
            f"{', '.join(signals) or 'nothing'}."
        )
    return signals[name]


def check_unit(what: str, signal: Signal, joints: Sequence[JointInfo]) -> None:
    """Refuse a signal of joints in another unit than radians, metres and the like."""
    units = JOINT_UNITS.get(what.partition(" ")[0])
    if units is None:
        return
    wanted = {units[joint.slides] for joint in joints}
    given = {unit.strip() for unit in signal.unit.split(",")}
    if not wanted <= given or not given <= set(units):
        raise ConfigError(
            f"{what}: the robot has them in {signal.unit or 'no unit'}, and they must be in "
            f"{' and '.join(sorted(wanted))}. Convert them in the driver."
        )


def _leaves(drive: Drive) -> Iterator[Drive]:
    drive = commanding_drive(drive)
    if isinstance(drive, JoinedDrive):
        yield from chain.from_iterable(map(_leaves, drive.drives))
    else:
        yield drive

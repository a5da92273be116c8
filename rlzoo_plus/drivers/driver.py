"""The six calls between a control loop and a robot, and what they exchange, by name and unit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.errors import ConfigError
from robots.sensors import JOINT_UNITS

Values = Mapping[str, NDArray[np.float64]]
"""Arrays of shape (n,) by the name of their signal; entries are in the order of its names."""

SAFE_ACTIONS = ("hold", "damp", "stop")
"""Hold the present position, oppose motion without holding, or switch the motors off."""

_UNITS: dict[str, tuple[str, ...]] = {
    **JOINT_UNITS,
    "position": ("m",),
    "velocity": ("m/s",),
    "angular_velocity": ("rad/s",),
    "ranges": ("m",),
}


class DriverError(RuntimeError):
    """The robot, or the way to it, failed; the message names the cause."""


@dataclass(frozen=True)
class Signal:
    """A group of numbers of one kind: one sensor, or one sort of command.

    The name of a sensor is that of its field of `robots.sensors.State`, such as `joint_position`
    or `base_angular_velocity`; that of a command is `joint_position`, `joint_velocity` or
    `joint_torque`.
    """

    names: tuple[str, ...]  # Of its entries, such as those of the joints
    unit: str  # Of all entries; of joints that differ "rad,m"
    lower: tuple[float, ...] | None = None  # Limits that the robot itself keeps
    upper: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Description:
    """What a robot can sense and what it can be commanded."""

    robot: str  # What it is called
    rate_hz: float  # Greatest rate of commands
    sensors: Mapping[str, Signal]
    commands: Mapping[str, Signal]
    safe_actions: tuple[str, ...] = SAFE_ACTIONS  # Those of `SAFE_ACTIONS` that it can do
    watchdog_s: float | None = None  # It stops itself after so long without a command


class Reading(NamedTuple):
    """What all sensors said at one moment."""

    time_s: float  # When it was measured, on the monotonic clock of the process that reads
    values: Values


class Driver(ABC):
    """A robot: connect, describe, read, write, stop, disconnect.

    `read` and `write` take less than a control period. Whatever fails raises `DriverError`.

    Attributes:
        is_stepped: Whether each command takes the robot one control step further, and nothing else
            does, as in a simulation that waits; then no time passes in between.
    """

    is_stepped = False

    @abstractmethod
    def connect(self) -> None:
        """Reach the robot; nothing moves yet. Calling it again does nothing."""

    @abstractmethod
    def describe(self) -> Description:
        """Return what it senses and what it can be commanded."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the newest reading of all sensors."""

    @abstractmethod
    def write(self, commands: Values) -> None:
        """Command the motors until the next command, entries in the order of `describe`."""

    @abstractmethod
    def stop(self, action: str) -> None:
        """Do one of `SAFE_ACTIONS` until the next `write`; calling it again changes nothing."""

    @abstractmethod
    def disconnect(self) -> None:
        """Let go of the robot, which does its safe action; calling it again does nothing."""

    def reset(self, seed: int | None = None) -> None:
        """Put the robot where an episode starts, if something can; by default nothing does.

        Args:
            seed: Of what is drawn, of a robot that draws it.
        """
        del seed


def unit_of(signal: str, slides: Sequence[bool] = (False, True)) -> str:
    """Return the unit in which a signal is exchanged.

    Args:
        signal: Its name.
        slides: Of each joint, whether it is a slider; both where it is not known.
    """
    units = _UNITS.get(signal) or _UNITS.get(signal.partition("_")[2]) or ("1",)
    found = [units[one] for one in slides] if len(units) > 1 else [*units]
    return found[0] if len(set(found)) == 1 else ",".join(found)


def check_commands(commands: Values, described: Description) -> None:
    """Check that there is one finite number for each motor, and nothing else.

    Raises:
        DriverError: There is not.
    """
    if set(commands) != set(described.commands):
        raise DriverError(
            f"{described.robot}: commands of {', '.join(commands) or 'nothing'}, and it takes: "
            f"{', '.join(described.commands)}."
        )
    for name, signal in described.commands.items():
        row = np.asarray(commands[name], np.float64)
        if row.shape != (len(signal.names),) or not np.isfinite(row).all():
            raise DriverError(
                f"{described.robot}: {name}={row.tolist()} must be {len(signal.names)} finite "
                f"numbers: {', '.join(signal.names)}."
            )


def columns_by_name(what: str, wanted: Sequence[str], given: Sequence[str]) -> list[int]:
    """Return where each wanted entry is among the given ones: entries match by name, not order.

    Args:
        what: What they are entries of, for messages.
        wanted: Names that are needed.
        given: Names that the robot has; it may have more.

    Raises:
        ConfigError: A name is missing, or occurs twice.
    """
    for side, names in (("needed", wanted), ("the robot's", given)):
        doubled = sorted({name for name in names if list(names).count(name) > 1})
        if doubled:
            raise ConfigError(f"{what}: {', '.join(doubled)} occurs twice among {side} names.")
    missing = [name for name in wanted if name not in given]
    if missing:
        raise ConfigError(
            f"{what}: the robot has no {', '.join(missing)}. It has: {', '.join(given) or 'none'}."
            " Rename its entries in the driver, or use a policy of this robot."
        )
    return [list(given).index(name) for name in wanted]

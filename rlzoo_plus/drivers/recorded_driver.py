"""The driver of a robot that is not there: a log gives what it read, and commands are kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.drivers.driver import (
    SAFE_ACTIONS,
    Description,
    Driver,
    DriverError,
    Reading,
    Signal,
    Values,
    check_commands,
    unit_of,
)
from rlzoo_plus.drivers.log_table import read_numbers
from rlzoo_plus.errors import ConfigError
from robots.sensors import State

Command = Literal["joint_position", "joint_velocity", "joint_torque"]
_SHORT = {"position": "joint_position", "velocity": "joint_velocity"}


class RecordedSettings(BaseModel):
    """Which log, and what the robot is said to take."""

    model_config = ConfigDict(extra="forbid")

    log: Path  # A CSV, such as `log.csv` of a session
    # Commands that it takes, of the joints whose position was read, where the log has none
    commands: list[Command] = ["joint_position"]
    # By its column `time` if None
    rate_hz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class RecordedDriver(Driver):
    """A log, row by row: the first after `connect` and `reset`, and the next with each command.

    Attributes:
        written: The commands so far, since the last of these.
    """

    Settings = RecordedSettings
    is_stepped = True

    def __init__(self, settings: RecordedSettings) -> None:
        """Read the log.

        Raises:
            ConfigError: It is no log of a robot.
        """
        where = printable(settings.log)
        names, self._rows = read_numbers(settings.log)
        self._columns: dict[str, list[int]] = {}
        sensors: dict[str, list[str]] = {}
        commands: dict[str, list[str]] = {}
        for column, name in enumerate(names):
            field, entry, is_command = _meaning(name)
            if is_command:
                commands.setdefault(field, []).append(entry)
            elif field in State._fields and entry:
                sensors.setdefault(field, []).append(entry)
                self._columns.setdefault(field, []).append(column)
        if "joint_position" not in sensors:
            raise ConfigError(
                f"{where} has no columns position/JOINT. Give the log of a session, or one as "
                "`rlzoo-plus identify` takes it; saved episodes have no joints."
            )
        joints = sensors["joint_position"]
        commands = commands or {name: joints for name in settings.commands}
        self._described = Description(
            robot=f"recorded in {where}",
            rate_hz=settings.rate_hz or _rate_of(names, self._rows, where),
            sensors=_signals(sensors),
            commands=_signals(commands),
        )
        self._row: int | None = None
        self._at_s = 0.0
        self.written: list[dict[str, NDArray[np.float64]]] = []

    def connect(self) -> None:
        """Begin with the first row, unless it is connected."""
        if self._row is None:
            self._start()

    def describe(self) -> Description:
        """Return what the log has."""
        self._present()
        return self._described

    def read(self) -> Reading:
        """Return the present row."""
        row = self._rows[self._present()]
        return Reading(self._at_s, {name: row[columns] for name, columns in self._columns.items()})

    def write(self, commands: Values) -> None:
        """Keep commands, and go to the next row."""
        row = self._present() + 1
        check_commands(commands, self._described)
        self.written.append({name: np.array(given, float) for name, given in commands.items()})
        if row == len(self._rows):
            raise DriverError(f"{self._described.robot}: its {row} rows are over.")
        self._row, self._at_s = row, time.monotonic()

    def stop(self, action: str) -> None:
        """Do nothing: what was recorded goes on with the next command."""
        self._present()
        if action not in SAFE_ACTIONS:
            raise DriverError(f"{action!r} is none of its safe actions: {', '.join(SAFE_ACTIONS)}.")

    def disconnect(self) -> None:
        """Let go of the log."""
        self._row = None

    def reset(self, seed: int | None = None) -> None:
        """Begin again; the seed changes nothing."""
        del seed
        self._present()
        self._start()

    def _start(self) -> None:
        self._row, self._at_s, self.written = 0, time.monotonic(), []

    def _present(self) -> int:
        if self._row is None:
            raise DriverError(f"{self._described.robot}: not connected. Call connect first.")
        return self._row


def _signals(entries: dict[str, list[str]]) -> dict[str, Signal]:
    return {name: Signal(tuple(names), unit_of(name)) for name, names in entries.items()}


def _meaning(column: str) -> tuple[str, str, bool]:
    """Return the signal of a column, the entry there, and whether it was a command."""
    kind, _, rest = column.partition("/")
    if kind in ("command", "reading"):
        field, _, entry = rest.partition("/")
        return field, entry, kind == "command"
    if kind == "base":
        field, _, entry = rest.partition("/")
        return f"base_{field}", entry, False
    return _SHORT.get(kind, kind), rest, False


def _rate_of(names: list[str], rows: NDArray[np.float64], where: str) -> float:
    for name in ("time", "time_s"):
        if name in names and len(rows) > 1:
            step_s = float(np.median(np.diff(rows[:, names.index(name)])))
            if step_s > 0:
                return 1 / step_s
    raise ConfigError(f"{where} has no column `time` that tells its rate. Set rate_hz=50.")

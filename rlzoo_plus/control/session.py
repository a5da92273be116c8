"""A session on a robot: its folder, the log of every step, what happened, and the report.

`log.csv` has a line for each decision, as `rlzoo-plus identify` reads it; `events.jsonl` what
happened, and `report.json` and `report.txt` what came of it.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.atomic import finite, write_atomic, write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.control.attention import LOG, OF_JOINTS, SESSIONS
from rlzoo_plus.control.driven_body import Acted
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.evaluation import Step
from robots.drives import EndEffectorDrive, JoinedDrive, commanding_drive
from robots.env import BaseRobotEnv

_OWNER_ONLY = 0o700


class Session:
    """The folder of a session, which its owner alone can enter."""

    def __init__(self, folder: Path | None) -> None:
        """Make the folder; by default `outputs/robot/TIME`.

        Raises:
            ConfigError: It holds something already, or cannot be made.
        """
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        self.folder = SESSIONS / f"{stamp}_{os.getpid()}" if folder is None else folder
        where = printable(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()):
                raise FileExistsError
            self.folder.chmod(_OWNER_ONLY)
            self._log = (self.folder / LOG).open("x", encoding="utf-8", buffering=1)
        except FileExistsError:
            raise ConfigError(f"{where} holds files, or is one. Name a new folder.") from None
        except OSError as error:
            raise ConfigError(f"{where} cannot be written: {error.strerror}.") from error
        self._events = (self.folder / "events.jsonl").open("a", encoding="utf-8", buffering=1)
        self._waiting: list[list[float]] = []

    def begin(self, about: Mapping[str, Any], columns: Sequence[str]) -> None:
        """Write what the session is of, and the names of the log's columns."""
        write_json(self.folder / "session.json", finite(dict(about)))
        line = StringIO()
        csv.writer(line, lineterminator="\n").writerow(columns)
        self._log.write(line.getvalue())

    def event(self, kind: str, text: str) -> None:
        """Write down what happened, at once."""
        now = time.time()
        self._events.write(json.dumps({"time": now, "kind": kind, "text": text}) + "\n")

    def add(self, row: list[float]) -> None:
        """Add a line to the log, which `write_waiting` writes when there is time."""
        self._waiting.append(row)

    def write_waiting(self) -> None:
        """Write the lines that were added; a killed process loses what was not."""
        for row in self._waiting:
            self._log.write(",".join(map(repr, row)) + "\n")
        self._waiting.clear()

    def end(self, report: Mapping[str, Any], text: str) -> None:
        """Write the report and close the files."""
        self.write_waiting()
        self._log.close()
        self._events.close()
        write_json(self.folder / "report.json", finite(dict(report)))
        write_atomic(self.folder / "report.txt", text + "\n")


class Rows:
    """Makes the log's lines of what was read, decided and earned.

    Attributes:
        columns: Their names.
    """

    def __init__(
        self, env: BaseRobotEnv, observation: Sequence[str], commands: Mapping[str, Sequence[str]]
    ) -> None:
        """Name the columns.

        Args:
            env: The environment.
            observation: Names of the entries of the observation.
            commands: Names of the entries of each command.
        """
        drive = env.robot.drive
        count = 1 if env.discrete_actions is not None else drive.n_actions
        actions = [str(number) for number in range(count)]
        targets = [joint.name for joint in drive.motors.joints]
        # Identification takes targets of joints where it can, which hold whatever came before.
        known, other = "action", "target_of_drive"
        if not isinstance(commanding_drive(drive), EndEffectorDrive | JoinedDrive):
            known, other = "policy", "target"
        else:
            targets = [str(number) for number in range(drive.n_targets)]
        self._terms = env.term_names
        self.columns = [
            *("time", "episode"),
            *(
                f"{_prefix(field)}/{entry}"
                for field, entries in env.world.sensors.layout().items()
                for entry in entries
            ),
            *(f"observation/{name}" for name in observation),
            *(f"{known}/{name}" for name in actions),
            *(f"{other}/{name}" for name in targets),
            *(f"command/{kind}/{name}" for kind, names in commands.items() for name in names),
            *("reward", *(f"reward/{name}" for name in self._terms)),
        ]

    def row(self, episode: int, acted: Acted, seen: np.ndarray, step: Step) -> list[float]:
        """Return the line of one step; `seen` is its observation, flat."""
        terms = step.infos[0].get("reward_terms", {})
        return [
            *(acted.time_s, episode, *acted.readings, *seen.tolist()),
            *(*np.ravel(step.action[0]).tolist(), *acted.targets),
            *(x for values in acted.commands.values() for x in values.tolist()),
            *(float(step.reward[0]), *(float(terms.get(name, 0.0)) for name in self._terms)),
        ]


def _prefix(field: str) -> str:
    """Return what begins the names of the columns of a field of the state."""
    if field in OF_JOINTS:
        return OF_JOINTS[field]
    return field.replace("base_", "base/", 1) if field.startswith("base_") else f"reading/{field}"

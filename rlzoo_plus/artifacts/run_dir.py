"""The layout of a run directory: every path and file name of a run is decided here."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

import yaml

from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.lock import RunLock
from rlzoo_plus.artifacts.records import append_lines
from rlzoo_plus.artifacts.secrets import redact_all
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    parse_yaml,
    read_json,
    read_plain_file,
)

# Where runs are made unless a directory is named.
OUTPUTS = Path("outputs")
RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"

# Bytes that systems allow in a name and in a path; below a run directory paths go on for a while.
_LONGEST_NAME, _LONGEST_PATH, _LONGEST_BELOW = 255, 4096, 200


@dataclass(frozen=True)
class RunDir:
    """One run's directory."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def command_file(self) -> Path:
        """The command line that started the run."""
        return self.path / "command.txt"

    @property
    def provenance_file(self) -> Path:
        """Code, libraries, machine and seeds."""
        return self.path / "provenance.json"

    @property
    def status_file(self) -> Path:
        """The state, replaced at every change."""
        return self.path / "status.json"

    @property
    def result_file(self) -> Path:
        """The outcome, written once at the end."""
        return self.path / "result.json"

    @property
    def metrics_file(self) -> Path:
        """One record an event: ts, step, key, value, tags."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations_file(self) -> Path:
        """One record an evaluation."""
        return self.path / "evaluations.jsonl"

    @property
    def tracker_file(self) -> Path:
        """What the run is called at its tracker, so that it goes on there as the same one."""
        return self.path / "tracker.json"

    @property
    def tensorboard(self) -> Path:
        """Event files for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def monitor(self) -> Path:
        """One CSV per training environment: return, length, time of each episode."""
        return self.path / "monitor"

    @property
    def best(self) -> Path:
        """The bundle with the best evaluation."""
        return self.path / "best"

    @property
    def final(self) -> Path:
        """The bundle of the last step."""
        return self.path / "final"

    @property
    def videos(self) -> Path:
        """Recorded videos."""
        return self.path / "videos"

    @property
    def plots(self) -> Path:
        """Plots."""
        return self.path / "plots"

    @property
    def checkpoint_request(self) -> Path:
        """A file that asks the training process for a checkpoint, which then removes it."""
        return self.path / ".checkpoint-request"

    @property
    def cut_rows_file(self) -> Path:
        """The log rows that a resume cut off, as long as they have not come again."""
        return self.path / "checkpoints" / "cut_rows.json"

    @property
    def lock(self) -> RunLock:
        """What a process must hold to train here."""
        return RunLock(self.path / ".lock")

    def checkpoints(self, keep: int = 3) -> CheckpointStore:
        """Return the store of this run's checkpoints."""
        return CheckpointStore(self.path / "checkpoints", keep)

    def exists(self) -> bool:
        """Return whether a run was started here."""
        return self.status_file.is_file() or self.config_file.is_file()

    def has_begun(self) -> bool:
        """Return whether a run came as far as to write its configuration here."""
        file = self.config_file
        return self.status_file.is_file() or (file.is_file() and file.stat().st_size > 0)

    def claim(self) -> None:
        """Take the directory for one run.

        Raises:
            FileExistsError: Another run has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # Opening for creation either makes the file or fails: that decides every race.
        self.config_file.open("x").close()

    def discard(self) -> None:
        """Remove what a run wrote that never came to save anything; any other run stays."""
        saved = (self.best, self.final, self.evaluations_file, self.path / "checkpoints")
        if any(path.exists() for path in saved):
            return
        for file in (self.config_file, self.command_file, self.provenance_file, self.status_file):
            file.unlink(missing_ok=True)
        lock = self.path / ".lock"
        for file in (self.metrics_file, self.tracker_file, self.checkpoint_request, lock):
            file.unlink(missing_ok=True)
        for folder in (self.monitor, self.tensorboard):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Fails, as it should, if there is anything that is not ours.
            self.path.rmdir()

    def start(self, config: dict[str, Any], command: str, provenance: dict[str, Any]) -> None:
        """Write what is known before the first step."""
        write_atomic(self.config_file, yaml.safe_dump(config, sort_keys=False))
        write_atomic(self.command_file, command + "\n")
        write_json(self.provenance_file, redact_all(provenance))

    def add_provenance(self, name: str, facts: dict[str, Any]) -> None:
        """Record one more thing that is known of where the run comes from."""
        write_json(self.provenance_file, redact_all({**self.read_provenance(), name: facts}))

    def go_on(self, config: dict[str, Any], command: str) -> None:
        """Record that the run goes on: its configuration now, and one more command line."""
        write_atomic(self.config_file, yaml.safe_dump(config, sort_keys=False))
        append_lines(self.command_file, f"{command}\n")
        # Of a run that is made longer; a run that goes on has no outcome yet.
        self.result_file.unlink(missing_ok=True)

    def read_config(self) -> dict[str, Any]:
        """Return the configuration as plain data; nothing in it is instantiated.

        Raises:
            OSError: It is missing, or a link.
            ValueError: It is no configuration.
        """
        data = parse_yaml(read_plain_file(self.config_file, LARGEST_YAML_BYTES))
        if not isinstance(data, dict):
            raise ValueError(f"{self.config_file} holds no configuration")
        return data

    def write_status(self, state: str, **details: Any) -> None:
        """Replace the status; what earlier states recorded stays unless it is given again."""
        now = time.time()
        before = self.read_status()
        first = {"started_at": now} if "started_at" not in before else {}
        # A message may quote what an environment or a service said.
        added = redact_all(details)
        status = {**before, **first, **added, "state": state, "updated_at": now}
        write_json(self.status_file, {**status, "pid": os.getpid()})

    def read_status(self) -> dict[str, Any]:
        """Return the status, empty if there is none."""
        return read_json(self.status_file)

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the outcome."""
        write_json(self.result_file, redact_all(result))

    def read_result(self) -> dict[str, Any]:
        """Return the outcome, empty while there is none."""
        return read_json(self.result_file)

    def write_tracker(self, known: dict[str, Any]) -> None:
        """Record what the run is called at its tracker."""
        write_json(self.tracker_file, known)

    def read_tracker(self) -> dict[str, Any]:
        """Return what the run is called at its tracker, empty if it has none yet."""
        return read_json(self.tracker_file)

    def read_provenance(self) -> dict[str, Any]:
        """Return code, libraries, machine and seeds, empty if they are not known."""
        return read_json(self.provenance_file)


def path_problem(path: PurePath) -> str | None:
    """Return why no file system takes a directory and what a run writes below it, None if it may.

    Args:
        path: The directory, which need not exist.
    """
    if not str(path).isprintable():
        return "it has characters that cannot be printed"
    if path.parts[:1] == ("~",):
        return "~ stands for nothing here. Write $HOME"
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > _LONGEST_NAME:
        return f"a name in it has {longest} bytes, and {_LONGEST_NAME} are allowed"
    length = len(os.fsencode(os.path.abspath(path)))
    if length + _LONGEST_BELOW > _LONGEST_PATH:
        return (
            f"its path has {length} bytes; files of a run need it to have at most "
            f"{_LONGEST_PATH - _LONGEST_BELOW}"
        )
    return None


def new_run_dir(root: Path, env: str, algo: str, seed: int) -> RunDir:
    """Create a directory for a run; two runs that start at the same instant get two.

    Args:
        root: The folder of all runs.
        env: Name of the environment.
        algo: Name of the algorithm.
        seed: Seed of the run.
    """
    parent = root / env / algo
    parent.mkdir(parents=True, exist_ok=True)
    stem = f"{datetime.now():%Y-%m-%d_%H-%M-%S}-s{seed}"
    for attempt in range(1, 10_000):
        path = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            # mkdir either makes the folder or fails: that decides every race.
            path.mkdir()
        except FileExistsError:
            continue
        return RunDir(path)
    raise OSError(f"{parent}/{stem}: too many runs started in one second")

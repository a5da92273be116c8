"""The layout of a run directory: every path and file name of a run is decided here."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

import yaml
from filelock import FileLock, Timeout

from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.encryption import Cipher
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.records import append_lines
from rlzoo_plus.artifacts.secrets import redact_all
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    parse_yaml,
    read_json,
    read_plain_file,
)

# Where runs are created unless a directory is named.
OUTPUTS = Path("outputs")
_STOP_RULE = re.compile(r"\bstop\.[a-z_]+")
RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"

_MIB = 2**20
# The small files of a run that others may have sent, and of a bundle; each with its largest size.
LARGEST_OF_RUN = {
    "config.yaml": LARGEST_YAML_BYTES,
    "command.txt": _MIB,
    "provenance.json": 4 * _MIB,
    "status.json": 4 * _MIB,
    "result.json": 4 * _MIB,
    "evaluations.jsonl": 64 * _MIB,
}
LARGEST_OF_BUNDLE = {
    **dict.fromkeys(("MANIFEST.json", "policy.json", "state.json"), 4 * _MIB),
    "tensors.safetensors": 1024 * _MIB,
}

# Longer than `is_held_elsewhere` of another process holds a lock.
_PATIENCE_S = 0.5
# No run has as many steps; a damaged record may claim them.
_MOST_STEPS = 10**15
# Bytes that systems allow in a name and in a path, and that a path below a run directory needs.
_LONGEST_NAME, _LONGEST_PATH, _LONGEST_BELOW = 255, 4096, 200


class RunLock:
    """An exclusive lock: one process trains in a run directory at a time.

    It is held until it is released or its process has ended, however that ends.
    """

    def __init__(self, path: Path) -> None:
        """Name the lock's file, e.g. `<run>/.lock`; the lock is not acquired yet."""
        self.path = path
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        """Acquire the lock; return False if a living process trains with it.

        Raises:
            OutsideError: The lock's file is a link.
        """
        # Acquiring a lock opens its file for writing.
        check_inside(self.path.parent, self.path)
        try:
            self._lock.acquire(timeout=_PATIENCE_S, poll_interval=0.02)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Release the lock; calling it again does nothing."""
        self._lock.release()

    def is_held_elsewhere(self) -> bool:
        """Return whether a living process has the lock."""
        # A link is not ours.
        if self.path.is_symlink() or not self.path.is_file():
            return False
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return True
        self.release()
        return False

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Below:
    """A path below a run directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, _: type[RunDir]) -> Path:
        return run.path / self._name


@dataclass(frozen=True)
class RunDir:
    """One run's directory."""

    path: Path

    config_file = _Below("config.yaml")  # the resolved configuration
    command_file = _Below("command.txt")  # the command lines of the run, the first on top
    provenance_file = _Below("provenance.json")  # code, libraries, machine and seeds
    status_file = _Below("status.json")  # the state, replaced at every change
    result_file = _Below("result.json")  # the outcome, written once at the end
    metrics_file = _Below("metrics.jsonl")  # one record an event: ts, step, key, value, tags
    evaluations_file = _Below("evaluations.jsonl")  # one record an evaluation
    tracker_file = _Below("tracker.json")  # the run's id at its tracker, to continue there
    actions_file = _Below("actions.bin")  # what each step of the training did, see action_file
    tensorboard = _Below("tensorboard")  # event files
    monitor = _Below("monitor")  # a CSV per environment: return, length, time of each episode
    best = _Below("best")  # the bundle with the best evaluation
    final = _Below("final")  # the bundle of the last step
    videos = _Below("videos")
    plots = _Below("plots")
    # A file that asks the training process for a checkpoint; that process then removes it.
    checkpoint_request = _Below(".checkpoint-request")
    # The log rows that a resume cut off, until they have been recorded again.
    cut_rows_file = _Below("checkpoints/cut_rows.json")

    @property
    def lock(self) -> RunLock:
        """The lock that a process must hold to train here."""
        return RunLock(self.path / ".lock")

    def checkpoints(self, keep: int = 3, cipher: Cipher | None = None) -> CheckpointStore:
        """Return the store of this run's checkpoints; a cipher encrypts new ones."""
        return CheckpointStore(self.path / "checkpoints", keep, cipher)

    def has_policy(self, which: str) -> bool:
        """Return whether a policy is saved here: `best`, `final` or the step of a checkpoint."""
        if which in ("best", "final"):
            # While a bundle is replaced, the one before is there.
            return any((self.path / f"{which}{end}").is_dir() for end in ("", ".previous"))
        try:
            return which.isdecimal() and int(which) in self.checkpoints().steps()
        except (OSError, ValueError):
            # In an untrusted run, folders can have any name.
            return False

    def exists(self) -> bool:
        """Return whether a run was started here."""
        return self.status_file.is_file() or self.config_file.is_file()

    def has_begun(self) -> bool:
        """Return whether a run has written its configuration here."""
        file = self.config_file
        return self.status_file.is_file() or (file.is_file() and file.stat().st_size > 0)

    def is_finished(self, n_timesteps: int, planned: int | None = None) -> bool:
        """Return whether nothing is left to train for so many steps.

        Args:
            n_timesteps: Steps that are wanted.
            planned: Steps that it was planned for, if its status does not say so.
        """
        status = self.read_status()
        total = status.get("n_timesteps", planned)
        is_long_enough = isinstance(total, int) and total >= n_timesteps
        return status.get("state") == FINISHED and (is_long_enough or self.stop_rule() is not None)

    def stop_rule(self) -> str | None:
        """Return the key, such as `stop.reward_threshold`, that has ended the run; None if none."""
        found = _STOP_RULE.search(str(self.read_result().get("reason")))
        return None if found is None else found[0]

    def claim(self) -> None:
        """Take the directory for one run.

        Raises:
            FileExistsError: Another run has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # Opening for creation either makes the file or fails: that decides every race.
        self.config_file.open("x").close()

    def discard(self) -> None:
        """Remove the files of a run that has saved nothing yet; any other run stays."""
        saved = (self.best, self.final, self.evaluations_file, self.path / "checkpoints")
        if any(path.exists() for path in saved):
            return
        started = (self.config_file, self.command_file, self.provenance_file, self.status_file)
        others = (self.metrics_file, self.tracker_file, self.checkpoint_request, self.lock.path)
        for file in (*started, *others):
            file.unlink(missing_ok=True)
        for folder in (self.monitor, self.tensorboard):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Fails, as it should, if anything else is in it.
            self.path.rmdir()

    def start(
        self,
        config: dict[str, Any],
        command: str,
        provenance: dict[str, Any],
        env_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Write configuration, command line and provenance before the first step.

        `env_defaults` are the arguments of the environment that the configuration does not set;
        they become comments of it.
        """
        write_atomic(self.config_file, _config_text(config, env_defaults))
        write_atomic(self.command_file, command + "\n")
        write_json(self.provenance_file, redact_all(provenance))

    def add_provenance(self, name: str, facts: dict[str, Any]) -> None:
        """Record one more entry of the run's provenance."""
        write_json(self.provenance_file, redact_all({**self.read_provenance(), name: facts}))

    def record_resume(
        self, config: dict[str, Any], command: str, env_defaults: Mapping[str, Any] | None = None
    ) -> None:
        """Record that the run is resumed: its present configuration, and one more command line."""
        write_atomic(self.config_file, _config_text(config, env_defaults))
        append_lines(self.command_file, f"{command}\n")
        # A finished run is extended: it has no outcome yet, and keeps the one of its first steps.
        if self.result_file.is_file():
            steps = self.read_result().get("num_timesteps")
            is_known = isinstance(steps, int) and 0 <= steps < _MOST_STEPS
            name = f"result-{steps}.json" if is_known else "result-before.json"
            os.replace(self.result_file, self.path / name)

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
        """Replace the status; entries of earlier states stay unless they are given again."""
        now = time.time()
        # A detail may quote a message of an environment or a service.
        before = self.read_status()
        status = {"started_at": now, **before, **redact_all(details)}
        status |= {"state": state, "updated_at": now, "pid": os.getpid()}
        is_same = before.get("pid") == os.getpid() and before.get("state") == RUNNING
        if before and state == RUNNING and not is_same:
            # Nobody has trained it since.
            waited = max(0.0, now - self.last_sign(before))
            status["idle_s"] = round(_seconds(before, "idle_s") + waited, 3)
        write_json(self.status_file, status)

    def last_sign(self, status: Mapping[str, Any]) -> float:
        """Return when a run with this status last wrote something [s since 1970]."""
        told = _seconds(status, "updated_at")
        # The files of a copy are younger than the run.
        if told and status.get("state") in (FINISHED, INTERRUPTED, FAILED):
            return told
        files = (file for file in (self.metrics_file, self.evaluations_file) if file.exists())
        return max([told, *(file.stat().st_mtime for file in files)])

    def read_status(self) -> dict[str, Any]:
        """Return the status, empty if there is none."""
        return read_json(self.status_file)

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the outcome."""
        write_json(self.result_file, redact_all(result))

    def read_result(self) -> dict[str, Any]:
        """Return the outcome, empty while there is none."""
        return read_json(self.result_file)

    def read_provenance(self) -> dict[str, Any]:
        """Return code, libraries, machine and seeds, empty if there are none."""
        return read_json(self.provenance_file)


def _config_text(config: dict[str, Any], env_defaults: Mapping[str, Any] | None) -> str:
    """Return a configuration as YAML, with the environment's own defaults as comments."""
    text = yaml.safe_dump(config, sort_keys=False)
    if not env_defaults:
        return text
    lines = yaml.safe_dump(dict(env_defaults), sort_keys=False).splitlines()
    about = "# Defaults of the environment; env.kwargs.NAME changes one.\n"
    return text + about + "".join(f"# {line}\n" for line in lines)


def path_problem(path: PurePath) -> str | None:
    """Return why a directory, which need not exist, cannot hold a run; None if it may."""
    if not str(path).isprintable():
        return "it has characters that cannot be printed"
    if path.parts[:1] == ("~",):
        return "~ is not expanded here. Write $HOME"
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > _LONGEST_NAME:
        return f"a name in it has {longest} bytes, and {_LONGEST_NAME} are allowed"
    length = len(os.fsencode(os.path.abspath(path)))
    if length + _LONGEST_BELOW > _LONGEST_PATH:
        return f"its path has {length} bytes, and {_LONGEST_PATH - _LONGEST_BELOW} are allowed"
    return None


def new_run_dir(root: Path, env: str, algo: str, seed: int) -> RunDir:
    """Create `<root>/<env>/<algo>/<time>-s<seed>`; two runs never get the same directory."""
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


def _seconds(status: Mapping[str, Any], name: str) -> float:
    value = status.get(name)
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e12 else 0.0

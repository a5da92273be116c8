"""Optuna's journal as a file that survives any kill: of a writer, a lock holder, the machine."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlzoo_plus.artifacts.untrusted import one_line, read_plain_lines
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.study_folder import JOURNAL
from rlzoo_plus.tuning.with_optuna import BaseJournalBackend, optuna

# A record is written in milliseconds: a longer wait is for a stopped process.
_LOCK_PATIENCE_S = 300.0
LARGEST_BYTES = 2**29
# The most records that one trial or study may have, by Optuna's code of the kind of record. Optuna
# copies all earlier ones for each. A study's directory holds one study.
_STUDY = 0
_MOST = {_STUDY: 100, 2: 5_000, 3: 5_000, 5: 5_000, 7: 10_000, 8: 5_000, 9: 5_000}


def open_journal(folder: Path, create: bool) -> optuna.storages.JournalStorage:
    """Open the journal in a study's directory; with `create`, create it if there is none."""
    path = folder / JOURNAL
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path} is no plain file, so it is no journal of a study.")
    if path.exists():
        _check_size(path)
    elif not create:
        raise ConfigError(f"{folder} holds no study: there is no {JOURNAL}.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
    # Optuna does not check what is written there.
    damages = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
    try:
        return optuna.storages.JournalStorage(SafeJournal(folder))
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {one_line(error)}.") from None
    except damages as error:
        raise ConfigError(
            f"{path} is damaged, {one_line(error)}. Remove what is no record, or begin a new "
            "study with hpo.study=NAME."
        ) from None


class SafeJournal(BaseJournalBackend):
    """A journal whose last record may be torn: it is cut off before the next one is written.

    Each record is on the disk before the lock is released, so no other can be torn. Readers skip a
    torn last record; with a record after it, the journal would be unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self._path = (folder / JOURNAL).absolute()
        # The system releases it when its holder is dead. Optuna's own locks are files: one that a
        # killed process leaves blocks all others for thirty seconds, and then may have two owners.
        self._lock = FileLock(self._path.with_name(".journal.lock"), timeout=_LOCK_PATIENCE_S)
        if not self._path.exists():
            self._path.touch()
        # How many records there are up to a place in the file.
        self._read = (0, 0)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from a number on; a torn last one is skipped.

        Optuna's own reader fails on zeros, which a power failure may leave.

        Raises:
            ValueError: A record before the last one is torn.
        """
        number, place = self._read if self._read[0] <= log_number_from else (0, 0)
        with open(self._path, "rb") as file:
            file.seek(place)
            # In one piece: others write, and what they have half written comes last.
            lines = io.BytesIO(file.read()).readlines()
        for index, line in enumerate(lines):
            record = _record(line)
            if record is None:
                if index < len(lines) - 1:
                    raise ValueError(f"line {number + 1} is no record")
                return
            number, place = number + 1, place + len(line)
            self._read = (number, place)
            if number > log_number_from:
                yield record

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records with one write, and flush them to the disk."""
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        # A file that was removed must not come back without its beginning: "r+b".
        with self._lock.acquire(poll_interval=0.005), open(self._path, "r+b", buffering=0) as file:
            # Up to the last whole record. After a power failure there may be zeros after it.
            for _ in self.read_logs(self._read[0]):
                pass
            file.truncate(self._read[1])
            file.seek(self._read[1])
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _check_size(path: Path) -> None:
    """Refuse a journal that would take minutes or all memory to read."""
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"{path} is larger than {LARGEST_BYTES // 2**20} MiB: no study's journal."
        )
    seen: Counter[tuple[int, int]] = Counter()
    for line in read_plain_lines(path):
        record = _record(line + b"\n") or {}
        code = record.get("op_code")
        if type(code) is not int or code not in _MOST:
            continue
        about = 0 if code == _STUDY else record.get("trial_id", record.get("study_id"))
        if type(about) is not int:
            continue
        seen[code, about] += 1
        if seen[code, about] > _MOST[code]:
            raise ConfigError(
                f"{path} has more than {_MOST[code]} records of one kind for the same trial or "
                "study: no study's journal."
            )

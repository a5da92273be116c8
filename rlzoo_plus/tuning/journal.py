"""Optuna's journal as a file that survives any kill: of a writer, a lock holder, the machine."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from optuna.storages.journal import BaseJournalBackend

from rlzoo_plus.artifacts.untrusted import read_plain_lines
from rlzoo_plus.errors import ConfigError

JOURNAL = "journal.log"
_LOCK = ".journal.lock"
# A record is written in milliseconds; who waits so long waits for a stopped process.
_LOCK_PATIENCE_S = 300.0
_BLOCK = 2**16


class SystemLock:
    """A lock that the system frees as soon as its holder is dead.

    Optuna's own locks are files: one that a killed process leaves blocks everybody for thirty
    seconds, and then two who have waited may both believe that it is theirs.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        """Wait for the lock.

        Raises:
            TimeoutError: A living process has it for minutes.
        """
        try:
            self._lock.acquire(timeout=_LOCK_PATIENCE_S, poll_interval=0.005)
        except Timeout:
            raise TimeoutError(
                f"{self._lock.lock_file} is held by a process that neither writes nor ends"
            ) from None
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()


class SafeJournal(BaseJournalBackend):
    """A journal whose last record may be torn: it is cut off before the next one is written.

    Each record is on the disk before the lock is given back, so no other can be torn. Readers
    pass over a torn last record; with a record behind it, nobody could read the journal any more.
    """

    def __init__(self, folder: Path) -> None:
        self._path = (folder / JOURNAL).absolute()
        self._lock = SystemLock(self._path.with_name(_LOCK))
        if not self._path.exists():
            self._path.touch()
        # How many records there are up to a place in the file.
        self._read = (0, 0)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from a number on; a torn last one is passed over.

        Optuna's own reader stumbles over zeros, which a power failure may leave.

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
        """Append records with one write, and bring them to the disk."""
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        self._lock.acquire()
        try:
            # A file that was removed must not come back without its beginning.
            handle = os.open(self._path, os.O_RDWR | os.O_APPEND)
            with open(handle, "r+b", buffering=0) as file:
                os.ftruncate(handle, _sound_size(handle))
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(handle)
        finally:
            self._lock.release()


def _sound_size(handle: int) -> int:
    """Return how long a journal is without a torn last record."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
    while start > 0 and tail.count(b"\n") < 2:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(handle, step, start) + tail
    whole = tail[: tail.rfind(b"\n") + 1]
    last = whole[whole[:-1].rfind(b"\n") + 1 :]
    sound = start + len(whole)
    # After a power failure a record may have its length, and zeros for its text.
    return sound if not last or _record(last) is not None else sound - len(last)


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


LARGEST_BYTES = 2**29
# Optuna's codes of records, and how many are taken of each kind for one trial or study. It copies
# all earlier ones at each; a study's directory holds one study.
_STUDY = 0
_MOST = {_STUDY: 100, 2: 5_000, 3: 5_000, 5: 5_000, 7: 10_000, 8: 5_000, 9: 5_000}


def check_journal(path: Path) -> None:
    """Refuse a journal that would take minutes or all memory to read.

    Raises:
        ConfigError: It is far larger than any study's.
    """
    if path.is_symlink() or not path.is_file():
        # Whoever opens it says so.
        return
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"{path} is larger than {LARGEST_BYTES // 2**20} MiB: no study's journal."
        )
    seen: Counter[tuple[int, int]] = Counter()
    for line in read_plain_lines(path):
        kind = _kind(line)
        if kind is None:
            continue
        seen[kind] += 1
        if seen[kind] > _MOST[kind[0]]:
            raise ConfigError(
                f"{path} has more than {_MOST[kind[0]]} records of one kind for the same "
                "trial or study: no study's journal."
            )


def _kind(line: bytes) -> tuple[int, int] | None:
    """Return a record's code and what it is about, None if there is no limit for it."""
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    code = record.get("op_code") if isinstance(record, dict) else None
    if type(code) is not int or code not in _MOST:
        return None
    about = 0 if code == _STUDY else record.get("trial_id", record.get("study_id"))
    return (code, about) if type(about) is int else None

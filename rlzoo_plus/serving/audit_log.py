"""The audit log: a line for each decision, each with the hash of the one before.

Lines wait in a bounded queue; a thread writes them. A killed process loses what waits, and how
much that was is known: `made` counts every line in memory that outlives the process.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.decision import Decision

FIRST_HASH = "0" * 64
STOP, DROP = "stop", "drop"
HEAD, MADE, LOCK = "head.json", "made.bin", "lock"
QUEUE, LARGEST_BYTES = 10_000, 64_000_000
START, END, DROPPED = "start", "end", "dropped"
_NAME = re.compile(r"audit-\d{6}\.jsonl")
_MOST_AT_ONCE, _POLL_S, _HEAD_EVERY_S = 500, 0.05, 1.0
_TAIL_BYTES = 2**20


def audit_files(folder: Path) -> list[Path]:
    """Return the files of a log, the oldest first."""
    return sorted(path for path in folder.glob("audit-*.jsonl") if _NAME.fullmatch(path.name))


class AuditLog:
    """Writes the log of one folder; the only one that does."""

    def __init__(
        self,
        folder: Path,
        *,
        full: str = STOP,
        queue: int = QUEUE,
        largest: int = LARGEST_BYTES,
    ) -> None:
        """Go on with the log of a folder, or begin one.

        Args:
            folder: The folder.
            full: `stop` answers nothing while the queue is full, `drop` leaves lines out.
            queue: Lines that may wait.
            largest: Bytes of a file before the next one begins.

        Raises:
            ConfigError: Another server writes there, or its end is damaged.
        """
        self.folder, self._full, self._size, self._largest = folder, full, queue, largest
        where = printable(folder)
        self._lock = FileLock(folder / LOCK)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(f"{where}: another server writes this log. Name another.") from None
        except OSError as error:
            raise ConfigError(f"{where} cannot be written: {error.strerror}.") from error
        self._queue: deque[tuple[int, Mapping[str, Any], Any]] = deque()
        self._adding, self._wake = threading.Lock(), threading.Event()
        self.dropped, self._untold, self.lost = 0, 0, 0
        self.failed: str | None = None
        self._ends, self._head_at, self._head_n = False, 0.0, -1
        self._hash, self._written = FIRST_HASH, 0
        self._resume()
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    def is_stopped(self) -> bool:
        """Tell whether nothing may be decided now, because it would not be written down."""
        return self._full == STOP and (len(self._queue) >= self._size or self.failed is not None)

    def decided(
        self, decision: Decision, agent: str, reward: float | None, latency_s: float
    ) -> None:
        """Add the line of a decision."""
        line = {
            "timestamp": round(time.time(), 6),
            "agent_id": agent,
            "session": decision.session,
            "step": decision.step,
            "version": decision.version,
            "source": decision.source,
            "reason": decision.reason,
            "reward": reward,
            "q_value": decision.value,
            # The mean or the best action; nothing is drawn.
            "exploration_flag": False,
            "latency_us": round(1e6 * latency_s, 1),
        }
        if decision.commands is not None:
            line |= {"shield": decision.changes, "commands": decision.commands}
        self._add(line, decision.action)

    def event(self, kind: str, **about: Any) -> None:
        """Add the line of something else that happened."""
        self._add({"timestamp": round(time.time(), 6), "event": kind, **about}, None)

    def close(self) -> None:
        """Write what waits, and that the log ends here."""
        self.event(END)
        self._ends = True
        self._wake.set()
        self._thread.join()
        self._file.close()
        self._made.close()
        self._lock.release()

    def _add(self, line: Mapping[str, Any], action: Any) -> None:
        with self._adding:
            is_decision = "event" not in line
            if is_decision and (len(self._queue) >= self._size or self.failed is not None):
                self.dropped += 1
                self._untold += 1
                return
            if self._untold:
                told = {"timestamp": line["timestamp"], "event": DROPPED, "count": self._untold}
                self._untold = 0
                self._put(told, None)
            self._put(line, action)
        if len(self._queue) > _MOST_AT_ONCE:
            self._wake.set()

    def _put(self, line: Mapping[str, Any], action: Any) -> None:
        self._n += 1
        struct.pack_into("<Q", self._made, 0, self._n)
        self._queue.append((self._n, line, action))

    def _write_all(self) -> None:
        while True:
            self._wake.wait(_POLL_S)
            self._wake.clear()
            ends = self._ends
            while self._queue:
                try:
                    self._write_some()
                    self.failed = None
                # A full disk: what waits stays, and is tried again.
                except OSError as error:
                    self.failed = str(error)
                    if ends:
                        return
                    break
            if ends or time.monotonic() - self._head_at > _HEAD_EVERY_S:
                self._write_head()
            if ends:
                return

    def _write_some(self) -> None:
        count = min(len(self._queue), _MOST_AT_ONCE)
        lines, previous = [], self._hash
        for n, line, action in (self._queue[at] for at in range(count)):
            whole = {"n": n, "prev": previous, **line}
            if action is not None:
                whole["action_hash"] = hash_of_action(action)
            data = json.dumps(whole, separators=(",", ":")).encode()
            previous = hashlib.sha256(data).hexdigest()
            lines.append(data)
        data = b"\n".join(lines) + b"\n"
        at = self._file.tell()
        if self._file.write(data) != len(data):
            # A full disk; a part of it would be torn.
            self._file.truncate(at)
            raise OSError("no space is left")
        self._hash = previous
        for _ in range(count):
            self._written = self._queue.popleft()[0]
        if at + len(data) > self._largest:
            self._file.close()
            self._write_head()
            self._begin_file()

    def _write_head(self) -> None:
        self._head_at = time.monotonic()
        if self._head_n == self._written:
            return
        try:
            write_json(self.folder / HEAD, {"n": self._written, "sha256": self._hash})
            self._head_n = self._written
        except OSError as error:
            self.failed = str(error)

    def _begin_file(self) -> None:
        names = [path.name for path in audit_files(self.folder)]
        number = int(names[-1][6:12]) + 1 if names else 1
        self._file = _unbuffered(self.folder / f"audit-{number:06}.jsonl")

    def _resume(self) -> None:
        """Find the end of what is there, and write that it goes on."""
        made = self.folder / MADE
        if not made.exists():
            made.write_bytes(bytes(8))
        with made.open("r+b") as file:
            self._made = mmap.mmap(file.fileno(), 8)
        (counted,) = struct.unpack_from("<Q", self._made, 0)
        files = audit_files(self.folder)
        about: dict[str, Any] = {}
        if not files:
            self._begin_file()
        else:
            about = self._find_end(files, counted)
        self._n = self._written
        with self._adding:
            now = round(time.time(), 6)
            self._put({"timestamp": now, "event": START, **about}, None)

    def _find_end(self, files: list[Path], counted: int) -> dict[str, Any]:
        """Open the newest file at its end; return what its first new line says of the last one."""
        lines, torn = _end_of(files[-1])
        self._file = _unbuffered(files[-1])
        about: dict[str, Any] = {}
        if torn:
            # The kernel wrote a part: it stays, as a line of its own.
            self._file.write(b"\n")
            about["torn"] = True
        for path in reversed(files[:-1]):
            lines = lines or _end_of(path)[0]
        try:
            last = json.loads(lines[-1]) if lines else {"n": 0}
            self._written = int(last["n"])
        except (ValueError, LookupError, TypeError):
            raise ConfigError(
                f"{printable(files[-1])} is damaged at its end: `rlzoo-plus audit verify` shows "
                "where. Keep the folder, and name another."
            ) from None
        before = torn or (lines[-1] if lines else b"")
        self._hash = hashlib.sha256(before).hexdigest() if before else FIRST_HASH
        if last.get("event") != END:
            self.lost = max(counted - self._written, 0)
            about |= {"after": "crash", "lost": self.lost}
            self._written = max(counted, self._written)
        return about


def _end_of(path: Path) -> tuple[list[bytes], bytes]:
    """Return the last whole lines of a file, and what a killed process left of one more."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _TAIL_BYTES, 0))
        *lines, torn = file.read().split(b"\n")
    return lines, torn


def hash_of_action(action: Any) -> str:
    """Return the SHA-256 of an action: its float32 or int64 numbers, the lowest byte first."""
    array = np.asarray(action)
    kind = "<f4" if array.dtype.kind == "f" else "<i8"
    return hashlib.sha256(np.ascontiguousarray(array, kind).tobytes()).hexdigest()


def _unbuffered(path: Path) -> BinaryIO:
    file = path.open("ab", buffering=0)
    path.chmod(0o600)
    return file

"""A job's process on this machine: its end, its limits, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Protocol

from rlzoo_plus.infra.job import GIB, JobEnd, Limits
from rlzoo_plus.infra.usage import session_memory_bytes

# Time for an iteration and a checkpoint of a job that is over its time.
STOP_GRACE_S = 60.0


class Process(Protocol):
    """A process that leads a session of its own, or is about to."""

    @property
    def pid(self) -> int | None:
        """Its process id."""

    @property
    def exitcode(self) -> int | None:
        """None while it runs; minus the number of the signal that killed it."""


class ProcessHandle:
    """A job in a process of its own on this machine, with its limits."""

    def __init__(self, process: Process, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._started = time.monotonic()
        self._over_since: float | None = None
        self._limit: str | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of its process."""
        return self._process.pid

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it runs; end it if it is over a limit."""
        code = self._process.exitcode
        if code is None:
            self._check_limits()
            return None
        # What it has left behind, such as the processes of its environments.
        self._send(signal.SIGKILL, only_group=True)
        return JobEnd(code, self._limit)

    def stop(self) -> None:
        """Send SIGTERM: training writes a last checkpoint and ends."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        self._send(signal.SIGKILL)

    def _check_limits(self) -> None:
        now, limits = time.monotonic(), self._limits
        if self._over_since is not None:
            if now - self._over_since > STOP_GRACE_S:
                self.kill()
            return
        if limits.time_s is not None and now - self._started > limits.time_s:
            self._over_since = now
            self._limit = f"longer than infra.time_limit_minutes={limits.time_s / 60:g}"
            self.stop()
        elif limits.memory_gib is not None and self.pid is not None:
            used = session_memory_bytes(self.pid) / GIB
            if used > limits.memory_gib:
                self._over_since = now
                self._limit = f"used {used:.2f} GiB, above infra.memory_gib={limits.memory_gib:g}"
                # To stop cleanly would take more memory.
                self.kill()

    def _send(self, number: int, *, only_group: bool = False) -> None:
        pid = self.pid
        if pid is None:
            return
        try:
            if number == signal.SIGKILL:
                os.killpg(pid, number)
                return
        except (ProcessLookupError, PermissionError):
            pass  # it has no group of its own yet, or nothing of it is left
        if not only_group and self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

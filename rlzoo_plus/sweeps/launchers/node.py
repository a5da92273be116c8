"""A job's process on the machine where it runs: started from plain data, watched, with limits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import OutsideError, open_to_append
from rlzoo_plus.errors import EXIT_FAILED, EXIT_SIGTERM
from rlzoo_plus.sweeps.launchers.job_process import THREADS
from rlzoo_plus.sweeps.launchers.launcher import GIB, JobEnd, JobSpec, Limits
from rlzoo_plus.sweeps.launchers.usage import session_memory_bytes

# How often a supervisor checks on its job [s].
LOOK_S = 0.1
# What a supervisor can be asked to do.
STOP, KILL = "stop", "kill"
# What multiprocessing says if the server of forks was killed.
_UNKNOWN_CODE = 255
# Time for an iteration and a checkpoint of a job that is over its time.
STOP_GRACE_S = 60.0
_WORKER = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from rlzoo_plus.sweeps.launchers.job_process import run_spawned; run_spawned()"
)


class _Spawned(subprocess.Popen[bytes]):
    @property
    def exitcode(self) -> int | None:
        return self.poll()


class ProcessHandle:
    """The handle of a job in a process of its own on this machine."""

    def __init__(self, process: BaseProcess | _Spawned, limits: Limits) -> None:
        assert process.pid is not None
        self.process, self.pid = process, process.pid
        self._limits = limits
        self._started = time.monotonic()
        self._over_since: float | None = None
        self._limit: str | None = None

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it runs; end it if it is over a limit."""
        code = self.process.exitcode
        if code is None:
            self._check_limits()
            return None
        # One that is still there was not seen to end: the server of forks was killed.
        if code == _UNKNOWN_CODE and _is_there(self.pid):
            code = EXIT_SIGTERM
        # Processes that it left behind, such as those of its environments.
        self.kill()
        return JobEnd(code, self._limit)

    def stop(self) -> None:
        """Send SIGTERM: training writes a last checkpoint and ends."""
        if self.process.exitcode is None:
            self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        # It may have no process group yet, or nothing of it may be left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.process.exitcode is None:
            self.process.kill()

    def _check_limits(self) -> None:
        now, limits = time.monotonic(), self._limits
        if self._over_since is not None:
            if now - self._over_since > STOP_GRACE_S:
                self.kill()
        elif limits.time_s is not None and now - self._started > limits.time_s:
            self._over_since = now
            self._limit = f"longer than infra.time_limit_minutes={limits.time_s / 60:g}"
            self.stop()
        elif limits.memory_gib is not None:
            used = session_memory_bytes(self.pid) / GIB
            if used > limits.memory_gib:
                self._over_since = now
                self._limit = f"used {used:.2f} GiB, above infra.memory_gib={limits.memory_gib:g}"
                # A clean stop would need more memory.
                self.kill()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def make_ticket(spec: JobSpec) -> dict[str, Any]:
    """Return a job as plain data, with what it needs from the controller's process."""
    return {
        "name": spec.name,
        "target": spec.target,
        "data": spec.data,
        "log": str(spec.log.absolute()),
        "limits": asdict(spec.limits),
        "folder": str(Path.cwd()),
        "path": [str(Path(entry).absolute()) for entry in sys.path],
        "environ": {name: os.environ.get(name, "1") for name in THREADS},
    }


def spawn(ticket: dict[str, Any]) -> ProcessHandle:
    """Start the process of a job.

    The ticket was made here or on another machine.

    Raises:
        OSError: It cannot be started here, e.g. as this machine lacks the controller's folder.
    """
    Path(ticket["log"]).parent.mkdir(parents=True, exist_ok=True)
    process = _Spawned(
        [sys.executable, "-c", _WORKER, str(Path(__file__).parents[3])],
        stdin=subprocess.PIPE,
        cwd=ticket["folder"],
        env=os.environ | ticket["environ"],
        start_new_session=True,
    )
    assert process.stdin is not None
    # The input stays open while the handle lives. The exit code tells if the process ended early.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(ticket).encode() + b"\n")
        process.stdin.flush()
    return ProcessHandle(process, Limits(**ticket["limits"]))


def supervise(
    ticket: dict[str, Any], request: Callable[[], str | None], kill_after_s: float = float("inf")
) -> JobEnd:
    """Run a job in a process beside this one, to its end.

    `request` returns `STOP` or `KILL` from when the job is to end, None before; it is killed so
    long after the first request [s].
    """
    if request() is not None:
        return JobEnd(EXIT_SIGTERM)
    try:
        handle = spawn(ticket)
    except OSError as error:
        note_in_log(ticket, f"cannot be started: {error}")
        return JobEnd(EXIT_FAILED, f"cannot be started: {error}")
    stopped_at: float | None = None
    while (end := handle.poll()) is None:
        asked, now = request(), time.monotonic()
        if asked == KILL or (stopped_at is not None and now - stopped_at > kill_after_s):
            handle.kill()
        elif asked is not None and stopped_at is None:
            stopped_at = now
            handle.stop()
        time.sleep(LOOK_S)
    return end


def note_in_log(ticket: dict[str, Any], text: str) -> None:
    """Append what happened outside of a job's process to its log."""
    path = Path(ticket["log"])
    with contextlib.suppress(OSError, OutsideError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(path) as file:
            file.write((text.rstrip("\n") + "\n").encode())


def sleep_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Sleep until a condition holds, or until the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))

"""Starts a job on the machine that a cluster has chosen; the job arrives and ends as plain data."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import OutsideError, open_to_append
from rlzoo_plus.infra.handle import ProcessHandle
from rlzoo_plus.infra.job import JobEnd, JobSpec, Limits
from rlzoo_plus.infra.worker import THREADS

# How often a job is looked at by the process beside it [s]: its end, its limits, what is asked.
LOOK_S = 0.1
# What training returns that SIGTERM has stopped.
STOPPED = 75
_WORKER = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from rlzoo_plus.infra.worker import run_spawned; run_spawned()"
)


def make_ticket(spec: JobSpec) -> dict[str, Any]:
    """Return a job as plain data, with what it would have found in the controller's process."""
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

    Args:
        ticket: What `make_ticket` returned, here or on another machine.

    Raises:
        OSError: It cannot be started here, e.g. as this machine lacks the controller's folder.
    """
    Path(ticket["log"]).parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(Path(__file__).parents[2])],
        stdin=subprocess.PIPE,
        cwd=ticket["folder"],
        env=os.environ | ticket["environ"],
        start_new_session=True,
    )
    assert process.stdin is not None
    # One that ends before it has read this tells so by its exit code.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(ticket).encode() + b"\n")
        process.stdin.flush()
    return ProcessHandle(_Spawned(process), Limits(**ticket["limits"]))


def note_in_log(ticket: dict[str, Any], text: str) -> None:
    """Append what happened outside of a job's process to its log."""
    path = Path(ticket["log"])
    with contextlib.suppress(OSError, OutsideError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(path) as file:
            file.write((text.rstrip("\n") + "\n").encode())


def end_of_record(record: object) -> JobEnd | None:
    """Return the end of a job that another process has written down; None if it is none."""
    if not isinstance(record, dict):
        return None
    code, limit = record.get("code"), record.get("limit")
    if not isinstance(code, int) or not (limit is None or isinstance(limit, str)):
        return None
    return JobEnd(code, limit)


def sleep_until(condition: Callable[[], bool], timeout_s: float, look_s: float = LOOK_S) -> None:
    """Sleep until a condition holds, or for so long."""
    deadline = time.monotonic() + timeout_s
    while not condition() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, look_s))


class _Spawned:
    """A process of `subprocess`, as a handle takes it; its input stays open while it is held."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

"""The inside of a job's process: its session, its log, its end when the controller is gone."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import open_to_append
from rlzoo_plus.infra.job import load_target

# Time for an iteration and a checkpoint after the controller is gone.
ORPHAN_GRACE_S = 600.0
# torch is told its number of threads by each job; this is for the libraries that ask no one.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_worker(target: str, data: dict[str, Any], log: str) -> None:
    """Be the process of a job, and end with the exit code of its function."""
    # Ctrl-C in the terminal is for the controller; what this starts ends together with it.
    os.setsid()
    # The server may have been started for processes that no signal is to reach.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _run(target, data, log, _wait_for_parent)


def run_spawned() -> None:
    """Be the process of a job that its first line of input describes.

    The input stays open as long as the process that has started this one lives.
    """
    ticket = json.loads(_first_line(0))
    life = os.dup(0)
    _close_input()
    # Whoever has started this may have blocked signals for its own sake.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Like a forked process, it imports what the controller can import.
    sys.path[:] = ticket["path"]
    _run(ticket["target"], ticket["data"], ticket["log"], lambda: _wait_for_end_of(life))


def _run(target: str, data: dict[str, Any], log: str, wait_for_parent: Callable[[], None]) -> None:
    _send_output_to(log)
    thread = threading.Thread(
        target=_end_with_parent, args=(wait_for_parent,), name="end-with-parent", daemon=True
    )
    thread.start()
    code = load_target(target)(data)
    # A cluster may send its signal twice; the second must not change how the job has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    sys.exit(code)


def _send_output_to(log: str) -> None:
    with open_to_append(Path(log)) as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}")


def _end_with_parent(wait_for_parent: Callable[[], None]) -> None:
    """Stop cleanly, as by SIGTERM, when the controller has been killed."""
    wait_for_parent()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    os.killpg(os.getpid(), signal.SIGKILL)


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is None:
        threading.Event().wait()
    else:
        connection.wait([parent.sentinel])


def _wait_for_end_of(pipe: int) -> None:
    while os.read(pipe, 1024):
        pass


def _first_line(pipe: int) -> bytes:
    """Read up to the end of a line, and nothing behind it."""
    parts = []
    while part := os.read(pipe, 65536):
        parts.append(part)
        if part.endswith(b"\n"):
            break
    return b"".join(parts)


def _close_input() -> None:
    """Let the job find an empty input, as one that was forked does."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

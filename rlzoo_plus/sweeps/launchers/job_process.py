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
from rlzoo_plus.processes import point_at_devnull
from rlzoo_plus.sweeps.launchers.launcher import load_target

# Time for an iteration and a checkpoint after the controller is gone.
ORPHAN_GRACE_S = 600.0
# Each job sets torch's number of threads; these are for other numerical libraries.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_worker(target: str, data: dict[str, Any], log: str) -> None:
    """Run a job in a process forked for it, and exit with the code of its function."""
    # Ctrl-C in the terminal is for the controller; what this starts ends together with it.
    os.setsid()
    parent = parent_process()

    def wait_for_parent() -> None:
        connection.wait([parent.sentinel] if parent else [])

    _run(target, data, log, wait_for_parent)


def run_spawned() -> None:
    """Run the job that the first line of input describes, and exit with its code.

    The input stays open as long as the process that started this one lives.
    """
    ticket = json.loads(sys.stdin.buffer.readline())
    parent = os.dup(0)
    # The job finds an empty input, as a forked one does.
    point_at_devnull(0)
    # Like a forked process, it imports what the controller can import.
    sys.path[:] = ticket["path"]
    _run(ticket["target"], ticket["data"], ticket["log"], lambda: os.read(parent, 1))


def _run(target: str, data: dict[str, Any], log: str, wait_for_parent: Callable[[], Any]) -> None:
    # Whatever started this may have blocked signals for its own sake.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with open_to_append(Path(log)) as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}")

    def end_with_parent() -> None:
        """Stop cleanly, as by SIGTERM, when the controller was killed."""
        wait_for_parent()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_GRACE_S)
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, name="end-with-parent", daemon=True).start()
    code = load_target(target)(data)
    # A cluster may send its signal twice; the second must not change how the job ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    sys.exit(code)

"""The inside of a job's process: its session, its log, its end when the controller is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing import connection, parent_process
from typing import Any

from rlzoo_plus.infra.job import load_target

# Time for an iteration and a checkpoint after the controller is gone.
ORPHAN_GRACE_S = 600.0


def run_worker(target: str, data: dict[str, Any], log: str) -> None:
    """Be the process of a job, and end with the exit code of its function."""
    # Ctrl-C in the terminal is for the controller; what this starts ends together with it.
    os.setsid()
    _send_output_to(log)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    code = load_target(target)(data)
    sys.stdout.flush()
    sys.exit(code)


def _send_output_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    for number, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
    print(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}, process {os.getpid()}")


def _end_with_parent() -> None:
    """Stop cleanly, as by SIGTERM, when the controller has been killed."""
    parent = parent_process()
    if parent is None:
        return
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    os.killpg(os.getpid(), signal.SIGKILL)

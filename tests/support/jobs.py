"""Functions that jobs run in tests of our own launchers and controller."""

import os
import signal
import time
from pathlib import Path

from rlzoo_plus.testing.jobs import fail, finish


def threads(data):
    print(os.environ["OMP_NUM_THREADS"])
    return 0


def fail_seed_1(data):
    return fail(data) if data["config"]["seed"] == 1 else finish(data)


def ignore_stop(data):
    """Go on when asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(data["file"]).write_text("started")
    time.sleep(100)

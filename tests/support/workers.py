"""Sweeps in stores and workers for tests, with times that are short."""

import os
import signal
import threading
from pathlib import Path

from support.processes import wait_for

from rlzoo_plus import __version__
from rlzoo_plus.store.lease import LARGEST_BYTES, RunLease, lease_name, list_leases, read_record
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.workers.task import Rules
from rlzoo_plus.workers.worker_loop import Times, Worker

SWEEP = "sweep"
QUICK = Times(
    *(0.1, 0.3, 0.1),
    expires_s=5.0,
    patience_s=5.0,
    stop_patience_s=5.0,
)
ABOUT = {"version": __version__, "code": None}


def run_record(config, **more):
    """Return the record of a run, as a command that submits writes it."""
    return {"event": "added", **make_job(config).record(), **more}


def task_record(key, function, **data):
    """Return the record of a job that calls a function of the tests."""
    target = function if ":" in function else f"rlzoo_plus.testing.jobs:{function}"
    return {"event": "added", "job": key, "title": key, "target": target, "data": data}


def submit(store, *records, **about):
    """Submit records; return their keys."""
    Submissions(store, SWEEP).add(records, {**ABOUT, **about})
    return [record["job"] for record in records]


def make_worker(store, folder, *, slots=2, times=QUICK, targets=(), trust=True, **options):
    """Return a worker that trusts the tests."""
    rules = Rules(trust, options.pop("any_version", False), targets)
    launcher = options.pop("launcher", None) or LocalLauncher(slots)
    return Worker(store, SWEEP, Path(folder), launcher, rules=rules, times=times, **options)


def state_of(store, key):
    """Return what the lease of a run says, empty without one."""
    found = store.get(lease_name(f"{SWEEP}/{key}"), LARGEST_BYTES)
    return {} if found is None else read_record(found[0])


def take(store, key, worker="another"):
    """Take a run as another worker, whoever has it; return its lease."""
    for _ in range(100):
        lease = RunLease(store, f"{SWEEP}/{key}", worker)
        # A beat of its worker may come in between.
        if lease.claim(list_leases(store, SWEEP), 0.0):
            return lease
    raise AssertionError(f"{key} cannot be taken")


def when(condition, act, timeout_s=120.0):
    """Act in a thread as soon as a condition holds."""

    def wait():
        try:
            wait_for(condition, timeout_s=timeout_s)
            act()
        except BaseException:
            # The worker would wait for what never comes.
            press(signal.SIGINT)
            raise

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def press(number=signal.SIGTERM):
    """Send this process a signal."""
    os.kill(os.getpid(), number)

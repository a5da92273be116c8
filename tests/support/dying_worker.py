"""Workers that are killed at each of many moments: FOLDER; prints what each left, as JSON.

Each worker is a fork of this process with a session, a store and a folder of its own. What takes
the signal is the worker's whole group, or the server of forks alone.
"""

import json
import os
import signal
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

from support.workers import make_worker, state_of, submit, task_record

from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import RunLease
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import RunSync
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.launchers.node import ProcessHandle
from rlzoo_plus.workers import worker_loop as module

# What a worker does from taking a run to its end; it is killed before the call, or after it.
MOMENTS = (
    *((RunLease, "claim"), (module.Worker, "_bring"), (RunLease, "beat")),
    *((module.Worker, "spec_of"), (LocalLauncher, "submit")),
    *((forkserver._forkserver, "connect_to_new_process"), (ProcessHandle, "poll")),
    *((RunMirror, "push"), (RunSync, "finish")),
)
KEYS = ("a/b/1", "a/b/2")


def kill_group():
    """Send SIGTERM to all processes of the worker but its trainings, which have sessions."""
    os.killpg(0, signal.SIGTERM)


def kill_server():
    """End the server of forks, as a lack of memory does."""
    pid = forkserver._forkserver._forkserver_pid
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def at(place, name, kill, *, after):
    """Let the first call of a function kill, before it or after it."""
    original, calls = getattr(place, name), []

    def call(*args, **kwargs):
        is_first = not calls
        calls.append(True)
        if is_first and not after:
            kill()
        found = original(*args, **kwargs)
        if is_first and after:
            kill()
        return found

    setattr(place, name, call)
    if place is forkserver._forkserver:
        forkserver.connect_to_new_process = call


def work(folder, kill, moment, after):
    """Work on two jobs, and be killed; returns the exit code and the states that are left."""
    store = open_store(folder / "store")
    submit(store, *(task_record(key, "say", word=key) for key in KEYS))
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if moment is not None:
            at(*moment, kill, after=after)
        module._TRY_AGAIN_S = 0.1
        say = ("rlzoo_plus.testing.jobs:say",)
        os._exit(make_worker(store, folder / "here", slots=1, targets=say).run())
    _, status = os.waitpid(pid, 0)
    states = [state_of(store, key) for key in KEYS]
    return os.waitstatus_to_exitcode(status), [
        {name: state.get(name) for name in ("state", "reason", "code")} for state in states
    ]


def main(root):
    """Kill workers, and print how each ended and what it left."""
    for kill in (kill_group, kill_server):
        for place, name in MOMENTS:
            for after in (False, True):
                what = f"{kill.__name__} {'after' if after else 'before'} {name}"
                folder = root / what.replace(" ", "-")
                code, states = work(folder, kill, (place, name), after)
                print(json.dumps({"what": what, "code": code, "states": states}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

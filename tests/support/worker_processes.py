"""Workers in processes of their own, with short times, for tests of what submits to them.

Use: python -m support.worker_processes STORE SWEEP FOLDER SLOTS
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from support.processes import environ_of_tests

from rlzoo_plus.store.contract import open_store
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.testing import jobs
from rlzoo_plus.workers.task import Rules
from rlzoo_plus.workers.worker_loop import Times, Wait, Worker

# Limits count from the start of a job, which has to import little then. Beats may come late.
PRELOAD = ("rlzoo_plus.runs.preload", "rlzoo_plus.testing.jobs")
QUICK = Times(beat_s=0.1, push_s=1.0, look_s=0.1, expires_s=20.0, patience_s=20.0)


def work(url: str, sweep: str, folder: str, slots: str, **options) -> int:
    """Work until a signal, or as the options of `Worker` say."""
    targets = [f"{jobs.__name__}:{name}" for name in vars(jobs)]
    rules, launcher = Rules(trust=True, targets=targets), LocalLauncher(int(slots), PRELOAD)
    options = {"rules": rules, "times": QUICK, "wait": Wait.ALWAYS, **options}
    return Worker(open_store(url), sweep, Path(folder), launcher, **options).run()


@contextlib.contextmanager
def worker_processes(url, sweep, folder, count):
    """Let so many workers of one slot each work until the end of the block; yields them."""
    words = [sys.executable, "-m", "support.worker_processes", str(url), sweep]
    usual = {"env": environ_of_tests(), "stdin": subprocess.DEVNULL}
    started = [
        subprocess.Popen([*words, str(Path(folder) / str(number)), "1"], cwd=os.getcwd(), **usual)
        for number in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


if __name__ == "__main__":
    sys.exit(work(*sys.argv[1:]))

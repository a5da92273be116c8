"""A worker in a thread: takes the jobs of a sweep in a store, and only pretends to train them."""

import contextlib
import tempfile
import threading
import time
import uuid
from pathlib import Path

from rlzoo_plus.analysis.progress import read_report
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.store.lease import CANCELLED, FAILED, FINISHED, RunLease, list_leases
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.submissions import Submissions


class Job:
    """A job that the worker has taken."""

    def __init__(self, lease, record, path):
        self.lease, self.record, self.path = lease, record, path
        self.config = record.get("config", {})
        self.run_dir = RunDir(path)

    def beat(self, **more):
        """Beat; return what is asked of the worker."""
        self.lease.beat(**self.report(), **more)
        return self.lease.request

    def report(self):
        about = {name: self.config[name] for name in ("n_timesteps", "seed") if name in self.config}
        return {**about, **read_report(self.run_dir)}

    def write(self, *records):
        """Write evaluations."""
        self.path.mkdir(parents=True, exist_ok=True)
        append_records(self.run_dir.evaluations_file, list(records))

    def finish(self, mean_return=1.0):
        """Write what a training writes that finishes."""
        config = {**self.config, "run_dir": str(self.path)}
        self.run_dir.start(config, "a worker", {})
        last = {"step": config["n_timesteps"], "mean_return": mean_return}
        self.run_dir.write_result(
            {"best": last, "final": last, "num_timesteps": config["n_timesteps"]}
        )
        self.run_dir.write_status("finished", n_timesteps=config["n_timesteps"])


def finish(job):
    job.finish(float(job.config["seed"]))
    return FINISHED, {"code": 0}


def fail(job):
    job.path.mkdir(parents=True, exist_ok=True)
    (job.path / "log.txt").write_text("the gearbox broke\n")
    return FAILED, {"code": 1, "reason": "the gearbox broke"}


def wait_for_request(job):
    """Beat until something is asked."""
    while (request := job.beat()) is None:
        time.sleep(0.02)
    return CANCELLED, {"code": 75, "reason": request["reason"]}


@contextlib.contextmanager
def worker_in_a_thread(store, sweep, act=finish):
    """Work until the end of the block; `act` gets each job, and returns its state and the rest.

    Yields the keys of the jobs that were taken, in their order.
    """
    is_over, taken, errors = threading.Event(), [], []

    def work(folder):
        submissions = Submissions(store, sweep)
        while not is_over.wait(0.02):
            for key, record in submissions.records().items():
                lease = RunLease(store, f"{sweep}/{key}", uuid.uuid4().hex)
                if is_over.is_set() or not lease.claim(list_leases(store, sweep)):
                    continue
                taken.append(key)
                job = Job(lease, record, folder / uuid.uuid4().hex / key)
                job.beat()
                state, more = act(job)
                RunMirror(store, f"{sweep}/{key}", job.path).push()
                lease.beat(state, **job.report(), **more)

    def guarded():
        try:
            with tempfile.TemporaryDirectory() as folder:
                work(Path(folder))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield taken
    is_over.set()
    thread.join(30)
    if errors:
        raise errors[0]

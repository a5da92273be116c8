"""AWS Batch on moto whose jobs do what a test says: wait, fail with a reason, or be processes.

moto's own jobs are containers, or succeed at once. Retries, the exit codes of attempts, and that to
cancel an array cancels its children that have not begun, are made here as AWS documents them.
"""

import contextlib
import fnmatch
import os
import subprocess
import threading

WAITING = ("SUBMITTED", "PENDING", "RUNNABLE")
ENDED = ("SUCCEEDED", "FAILED")


class FakeBatch:
    """The jobs that were submitted; `start` is called with each that is no array."""

    def __init__(self, start=None):
        self.jobs, self.cancelled, self.stopping = [], [], threading.Event()
        self._start = start
        self.threads = []

    def submitted(self, include_start_attempt, job):
        """Take a job from moto: an array, or one of its children, or a lone one."""
        job.backend._jobs[job.job_id] = job
        job.status = "RUNNABLE" if include_start_attempt else "PENDING"
        if include_start_attempt:
            self.jobs.append(job)
            if self._start is not None:
                thread = threading.Thread(target=self._start, args=(self, job), daemon=True)
                self.threads.append(thread)
                thread.start()

    def set(self, index, status, reason=None, code=None):
        """Give a job, counted over all that were submitted, another status."""
        job = self.jobs[index]
        job.status, job.job_stopped_reason, job.exit_code = status, reason, code
        job.job_stopped = status in ENDED
        self._end_array(job)

    def of(self, array_or_job):
        """Return the children of an array, or the job itself."""
        return array_or_job._child_jobs or [array_or_job]

    def cancel(self, backend, job_id, reason):
        """Do what CancelJob does: end what has not begun."""
        self.cancelled.append(job_id)
        for job in self.of(backend.get_job_by_id(job_id)):
            if job.status in WAITING:
                self.set(self.jobs.index(job), "FAILED", reason)

    def _end_array(self, job):
        parents = (j for j in job.backend._jobs.values() if job in (j._child_jobs or ()))
        for parent in parents:
            if all(child.status in ENDED for child in parent._child_jobs):
                failed = any(child.status == "FAILED" for child in parent._child_jobs)
                parent.status = "FAILED" if failed else "SUCCEEDED"


@contextlib.contextmanager
def fake_batch(monkeypatch, start=None):
    """Let moto's Batch, here and in the server of this process, keep jobs as `FakeBatch` does."""
    from moto.batch.models import BatchBackend, Job
    from moto.batch_simple.models import BatchSimpleBackend
    from moto.moto_api import state_manager

    fake = FakeBatch(start)
    # A status is what was set, however often it is asked for.
    state_manager.set_transition("batch::job", {"progression": "manual", "times": 10**9})
    monkeypatch.setattr(
        BatchSimpleBackend,
        "_mark_job_as_finished",
        lambda self, include_start_attempt, job: fake.submitted(include_start_attempt, job),
    )
    monkeypatch.setattr(BatchBackend, "cancel_job", lambda *given: fake.cancel(*given))
    described = Job.describe_short
    monkeypatch.setattr(
        Job,
        "describe_short",
        lambda job: {
            **described(job),
            **({"isCancelled": True} if job.job_id in fake.cancelled else {}),
        },
    )
    try:
        yield fake
    finally:
        fake.stopping.set()
        for thread in fake.threads:
            thread.join(60)
        state_manager.unset_transition("batch::job")


def as_processes(command):
    """Return what starts each job as processes of this machine, attempt after attempt.

    Args:
        command: The words in the place of the image's entry point.
    """

    def start(fake, job):
        index = fake.jobs.index(job)
        details = job.describe()["container"]
        environ = {variable["name"]: variable["value"] for variable in details["environment"]}
        retry = job.job_definition.retry_strategy
        for attempt in range(1, retry["attempts"] + 1):
            if fake.stopping.is_set() or job.status in ENDED:
                return
            fake.set(index, "RUNNING")
            own = {"AWS_BATCH_JOB_ID": job.job_id, "AWS_BATCH_JOB_ATTEMPT": str(attempt)}
            environment = {**os.environ, **environ, **own}
            process = subprocess.Popen([*command, *details["command"]], env=environment)
            code = _wait(process, fake.stopping)
            if code == 0 or not _is_retried(retry["evaluateOnExit"], code):
                break
        fake.set(index, "SUCCEEDED" if code == 0 else "FAILED", code=code)

    return start


def _wait(process, stopping):
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            if stopping.is_set():
                process.terminate()


def _is_retried(rules, code):
    for rule in rules:
        if fnmatch.fnmatch(str(code), rule.get("onExitCode", "?" * 99)):
            return rule["action"].upper() == "RETRY"
        if "onExitCode" not in rule and rule["action"].upper() == "EXIT":
            return False
    return True

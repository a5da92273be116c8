"""What state each job of a sweep is in, and why a job has failed."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.run_dir import FAILED, RUNNING, RunDir
from rlzoo_plus.artifacts.untrusted import printable, read_plain_tail
from rlzoo_plus.infra.job import JobEnd
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.job import SweepJob
from rlzoo_plus.sweeps.progress import Progress, read_progress

_LOG_TAIL_BYTES = 4096


def log_file(run: RunDir) -> Path:
    """Return the file with a job's output."""
    return run.path / "log.txt"


class JobState(StrEnum):
    """What a job does."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class JobView:
    """A job as a table shows it.

    Attributes:
        job: The job.
        state: What it does.
        reason: Why it failed, or what else there is to say.
        progress: How far it is.
        best: Mean return of its best evaluation, if it is done.
        final: Mean return of its last evaluation, if it is done.
        time_s: Time it has trained, if it is done [s].
    """

    job: SweepJob
    state: JobState
    reason: str = ""
    progress: Progress = field(default_factory=Progress)
    best: float | None = None
    final: float | None = None
    time_s: float | None = None


def look_at(past: ledger.Past) -> list[JobView]:
    """Return all jobs of a sweep with their states, from the ledger and the run directories."""
    return [view_of(job, *_state(job, past)) for job in past.jobs.values()]


def view_of(job: SweepJob, state: JobState, reason: str = "") -> JobView:
    """Return a job as a table shows it, with what its run directory tells."""
    if state is not JobState.DONE:
        return JobView(job, state, reason, read_progress(job.run_dir))
    result = job.run_dir.read_result()
    return JobView(
        job,
        state,
        reason,
        Progress(int(finite(result.get("num_timesteps")) or job.config.n_timesteps)),
        _mean_return(result.get("best")),
        _mean_return(result.get("final")),
        finite(result.get("training_time_s")),
    )


def explain_end(end: JobEnd, job: SweepJob) -> str:
    """Say in one line why a job did not finish."""
    if end.limit is not None:
        return end.limit
    if end.code < 0:
        try:
            name = signal.Signals(-end.code).name
        except ValueError:
            name = str(-end.code)
        return f"killed by {name}"
    status = job.run_dir.read_status()
    if status.get("state") == FAILED and end.code == 1:
        return printable(status.get("message") or "an error")
    if end.code in (75, 130):
        return "stopped by a signal from outside; it can go on"
    said = _last_words(job.run_dir)
    return f"exit code {end.code}" + (f": {said}" if said else "")


def _state(job: SweepJob, past: ledger.Past) -> tuple[JobState, str]:
    if job.is_finished():
        return JobState.DONE, ""
    if job.run_dir.lock.is_held_elsewhere():
        return JobState.RUNNING, ""
    last = past.last.get(job.key, {})
    if last.get("event") == ledger.FAILED:
        return JobState.FAILED, printable(last.get("reason", ""))
    status = job.run_dir.read_status()
    if status.get("state") == FAILED:
        return JobState.FAILED, printable(status.get("message") or "an error")
    died = status.get("state") == RUNNING and last.get("event") == ledger.STARTED
    return JobState.WAITING, "its process is gone; it can go on" if died else ""


def _mean_return(record: object) -> float | None:
    return finite(record.get("mean_return")) if isinstance(record, dict) else None


def _last_words(run: RunDir) -> str:
    tail = read_plain_tail(log_file(run), _LOG_TAIL_BYTES)
    lines = [line.decode("utf-8", "replace") for line in tail]
    said = [line.strip() for line in lines if line.strip() and not line.startswith("--- ")]
    return printable(said[-1]) if said else ""

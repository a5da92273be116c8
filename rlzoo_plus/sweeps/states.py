"""What state each job of a sweep is in, how far it is, and why jobs have failed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.run_dir import FAILED, RUNNING, RunDir
from rlzoo_plus.artifacts.untrusted import printable, read_plain_tail
from rlzoo_plus.infra.launcher import JobEnd
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.job import SweepJob

_LOG_TAIL_BYTES, _RECORDS_TAIL_BYTES = 4096, 2**15
# A number that is a value, not the end of a name.
_NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_TOLD = 20


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
class Progress:
    """How far a run is.

    Attributes:
        steps: Environment steps taken, as far as it is written down.
        rate: Environment steps a second lately, None if not known.
        mean_return: Of the last evaluation, None if there is none.
    """

    steps: int = 0
    rate: float | None = None
    mean_return: float | None = None

    def left_s(self, n_timesteps: int) -> float | None:
        """Return the time that the rest will take [s], None if that is not known."""
        return max(n_timesteps - self.steps, 0) / self.rate if self.rate else None


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


def look_at(past: ledger.Past, jobs: Iterable[SweepJob] | None = None) -> list[JobView]:
    """Return jobs of a sweep with their states, from the ledger and the run directories.

    Args:
        past: What the ledger tells.
        jobs: Which of them, None for all.
    """
    wanted = past.jobs.values() if jobs is None else jobs
    return [view_of(job, *_state(job, past)) for job in wanted]


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


def read_progress(run: RunDir) -> Progress:
    """Return how far a run is; only the ends of its files are read."""
    since = finite(run.read_status().get("updated_at")) or 0.0
    marks = _marks(_last_records(run.metrics_file))
    evaluations = _last_records(run.evaluations_file)
    mean = finite(evaluations[-1].get("mean_return")) if evaluations else None
    steps = [step for _, step in marks[-1:]]
    evaluated = finite(evaluations[-1].get("step")) if evaluations else None
    steps += [] if evaluated is None else [int(evaluated)]
    recent = [mark for mark in marks if mark[0] >= since]
    return Progress(max(steps, default=0), _rate(recent), mean)


def _marks(records: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Return time and step of each moment at which something was recorded."""
    marks: dict[int, float] = {}
    for record in records:
        when, step = finite(record.get("ts")), finite(record.get("step"))
        if when is not None and step is not None:
            marks[int(step)] = when
    return [(when, step) for step, when in sorted(marks.items())]


def _rate(marks: list[tuple[float, int]]) -> float | None:
    if len(marks) < 2:
        return None
    seconds = marks[-1][0] - marks[0][0]
    return (marks[-1][1] - marks[0][1]) / seconds if seconds > 0 else None


def _last_records(path: Path) -> list[dict[str, Any]]:
    records = []
    # The last line may be the beginning of one; it is no record then.
    for line in read_plain_tail(path, _RECORDS_TAIL_BYTES):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            records += [record] if isinstance(record, dict) else []
    return records


@dataclass
class _Cause:
    """Texts that differ in numbers at most."""

    first: str
    n_jobs: int = 0
    texts: set[str] = field(default_factory=set)


def tell_causes(texts: Iterable[str], total: int) -> list[str]:
    """Return a line for each cause: how many jobs have it, and the first text of it.

    Args:
        texts: What is wrong with each job that has something wrong; lines are causes of their own.
        total: All jobs.
    """
    causes: dict[str, _Cause] = {}
    for text in texts:
        for line in dict.fromkeys(text.split("\n")):
            cause = causes.setdefault(_NUMBER.sub("#", line), _Cause(line))
            cause.n_jobs += 1
            cause.texts.add(line)
    told = [_line(cause, total) for cause in list(causes.values())[:_MOST_TOLD]]
    n_more = len(causes) - _MOST_TOLD
    return told if n_more <= 0 else [*told, f"and {n_more:,} more mistakes"]


def _line(cause: _Cause, total: int) -> str:
    if total == 1:
        return cause.first
    others = len(cause.texts) - 1
    alike = f" (and {others:,} more like it, with other numbers)" if others else ""
    return f"{cause.n_jobs:,} of {total:,} jobs: {cause.first}{alike}"

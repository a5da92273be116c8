"""The state and progress of each job of a sweep, why jobs failed, and what they printed last."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.analysis.progress import Progress, read_progress
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.run_dir import FAILED, RUNNING, RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable, read_plain_tail
from rlzoo_plus.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, ConfigError
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.sweeps.sweep_job import SweepJob

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.sweeps.sweep_job import SweepJob

# A number that is a value, not the end of a name.
_NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_CAUSES = 20


def log_file(run: RunDir) -> Path:
    """Return the file with a job's output."""
    return run.path / "log.txt"


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class JobView:
    """A job as a table shows it."""

    job: SweepJob
    state: JobState
    reason: str = ""  # why it failed, or another remark
    progress: Progress = field(default_factory=Progress)  # how far it is
    best: float | None = None  # mean return of its best evaluation, if it is done
    final: float | None = None  # mean return of its last evaluation, if it is done
    time_s: float | None = None  # training time, if it is done [s]


def look_at(past: ledger.Past, jobs: Iterable[SweepJob] | None = None) -> list[JobView]:
    """Return jobs of a sweep, all by default, with their states from ledger and directories."""
    views = []
    for job in past.jobs.values() if jobs is None else jobs:
        state, reason, last = JobState.WAITING, "", past.last.get(job.key, {})
        if job.is_finished():
            state = JobState.DONE
        elif job.run_dir.lock.is_held_elsewhere():
            state = JobState.RUNNING
        elif last.get("event") == ledger.FAILED:
            state, reason = JobState.FAILED, printable(last.get("reason", ""))
        else:
            status = job.run_dir.read_status()
            if status.get("state") == FAILED:
                state, reason = JobState.FAILED, printable(status.get("message") or "an error")
            elif status.get("state") == RUNNING and last.get("event") == ledger.STARTED:
                reason = "its process is gone; it can go on"
        views.append(view_of(job, state, reason))
    return views


def view_of(job: SweepJob, state: JobState, reason: str = "") -> JobView:
    """Return a job as a table shows it, from its run directory."""
    if state is not JobState.DONE:
        return JobView(job, state, reason, read_progress(job.run_dir))
    result = job.run_dir.read_result()
    steps = int(finite(result.get("num_timesteps")) or job.config.n_timesteps)
    records = [result.get(name) for name in ("best", "final")]
    best, final = (finite(r.get("mean_return")) if isinstance(r, dict) else None for r in records)
    time_s = finite(result.get("training_time_s"))
    return JobView(job, state, reason, Progress(steps), best, final, time_s)


def explain_end(end: JobEnd, run: RunDir) -> str:
    """Return in one line why a job did not finish."""
    if end.limit is not None:
        return end.limit
    if end.code < 0:
        known = {int(number): number.name for number in signal.Signals}
        return f"killed by {known.get(-end.code, end.code)}"
    status = run.read_status()
    if status.get("state") == FAILED and end.code == EXIT_FAILED:
        return printable(status.get("message") or "an error")
    if end.code in (EXIT_SIGTERM, EXIT_SIGINT):
        return "stopped by a signal from outside; it can go on"
    tail = [line.decode("utf-8", "replace") for line in read_plain_tail(log_file(run), 4096)]
    said = [line.strip() for line in tail if line.strip() and not line.startswith("--- ")]
    return f"exit code {end.code}" + (f": {printable(said[-1])}" if said else "")


def tell_causes(texts: Iterable[str], total: int) -> list[str]:
    """Return a line for each cause: how many jobs have it, and the first text of it.

    Texts that differ only in numbers are one cause.
    """
    causes: dict[str, list[str]] = {}
    for text in texts:
        for line in dict.fromkeys(text.split("\n")):
            causes.setdefault(_NUMBER.sub("#", line), []).append(line)
    told = []
    for lines in list(causes.values())[:_MOST_CAUSES]:
        n_others = len(set(lines)) - 1
        alike = f" (and {n_others:,} more like it, with other numbers)" if n_others else ""
        count = f"{len(lines):,} of {total:,} jobs: "
        told.append(lines[0] if total == 1 else f"{count}{lines[0]}{alike}")
    n_more = len(causes) - _MOST_CAUSES
    return told if n_more <= 0 else [*told, f"and {n_more:,} more mistakes"]


# Of a log: enough for hundreds of lines.
TAIL_BYTES = 2**18
_MOST_JOBS = 10


def log_tail(job: SweepJob, n_lines: int) -> list[str] | None:
    """Return the last lines of a job's log, None if it has none."""
    if not log_file(job.run_dir).is_file():
        return None
    return last_lines(b"\n".join(read_plain_tail(log_file(job.run_dir), TAIL_BYTES)), n_lines)


def last_lines(data: bytes, n_lines: int) -> list[str]:
    """Return the last lines of an untrusted text, safe to print; of a bar, what it showed last."""
    lines = data.decode("utf-8", "replace").rstrip().split("\n")
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return [printable(line, LONGEST_LINE) for line in shown[-n_lines:]]


def print_logs(
    views: Sequence[JobView],
    part: str | None,
    read: Callable[[SweepJob], list[str] | None],
    console: Console,
) -> None:
    """Print the last lines of the logs of jobs; of many jobs, the first.

    `part` is a part of the path of those that are meant, None for those that run or have failed;
    `read` returns the last lines of a job's log, None if there is none.
    """
    states = (JobState.RUNNING, JobState.FAILED)
    chosen = [v for v in views if (v.state in states if part is None else part in v.job.key)]
    if not chosen and part is not None:
        known = f", such as {views[0].job.key}" if views else ""
        raise ConfigError(
            f"{printable(part)} is in the path of none of the {len(views):,} jobs{known}. Name a "
            "part of a job's path, or none for the jobs that run or have failed."
        )
    if not chosen:
        console.print("no job runs, and none has failed; name others by a part of their path")
    for view in chosen[:_MOST_JOBS]:
        console.print(f"== {view.job.key} ({view.state})", markup=False, style="bold")
        lines = read(view.job)
        for line in ["no log yet"] if lines is None else lines:
            console.print(line, markup=False)
    if len(chosen) > _MOST_JOBS:
        more = len(chosen) - _MOST_JOBS
        console.print(f"and {more:,} more jobs: name one by a longer part of its path")

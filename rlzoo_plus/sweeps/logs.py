"""The last lines of what the jobs of a sweep printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable, read_plain_tail
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.states import JobState, JobView, log_file

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.sweeps.sweep_job import SweepJob

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

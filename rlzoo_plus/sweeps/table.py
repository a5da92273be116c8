"""What a sweep looks like: a table while it runs, or a line for each job, and one at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlzoo_plus.sweeps.states import JobState, JobView
from rlzoo_plus.sweeps.summary import Row, shown

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

MOST_FAILED = 3
_MOST_ROWS = 16
_MOST_SUMMED = 50
# Besides the rows: counts, heads, two lines for what is left out, and the failed jobs.
_OTHER_LINES = 4 + MOST_FAILED
_NONE: Mapping[JobState, int] = {}


def live_table(
    views: list[JobView],
    workers: int,
    usual_s: float | None,
    *,
    others: Mapping[JobState, int] = _NONE,
    lines: int = 24,
) -> Group:
    """Return the state of a sweep at one moment; in 80 columns, no line of it is wrapped.

    Args:
        views: Its jobs, or those among them that run or have failed last.
        workers: Jobs that run at once.
        usual_s: Time that a job takes, None if that is not known [s].
        others: How many more jobs there are in each state.
        lines: Height of the terminal.
    """
    from rich.console import Group

    running = [view for view in views if view.state is JobState.RUNNING]
    failed = [view for view in views if view.state is JobState.FAILED]
    head = _line(headline(views, workers, usual_s, others), "bold")
    n_rows = max(1, min(_MOST_ROWS, lines - _OTHER_LINES))
    n_failed = len(failed) + others.get(JobState.FAILED, 0)
    more = [len(running) - n_rows, n_failed - MOST_FAILED]
    below = [_line(f"and {more[0]} more", "dim")] if more[0] > 0 else []
    below += [_line(f"and {more[1]} failed before", "red")] if more[1] > 0 else []
    for view in failed[-MOST_FAILED:]:
        below.append(_line(f"failed: {view.job.title}: {view.reason}", "red"))
    return Group(head, *([_running_table(running[:n_rows])] if running else []), *below)


def _running_table(views: list[JobView]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    remarks = any(view.reason for view in views)
    # Where there is little room, names and remarks are cut, numbers are not.
    for name in ("algorithm", "environment"):
        table.add_column(name)
    # Wide enough from the beginning, so that the columns do not jump.
    for name, width in (("seed", 4), ("steps", 11), ("steps/s", 7), ("left", 7), ("return", 7)):
        table.add_column(name, no_wrap=True, min_width=width)
    if remarks:
        table.add_column("")
    for view in views:
        config, progress = view.job.config, view.progress
        left = progress.left_s(config.n_timesteps)
        table.add_row(
            _line(config.algo.name),
            _line(str(config.env.name)),
            str(config.seed),
            f"{brief(progress.steps)}/{brief(config.n_timesteps)}",
            "-" if progress.rate is None else f"{progress.rate:,.0f}",
            "-" if left is None else duration(left),
            "-" if progress.mean_return is None else f"{progress.mean_return:.1f}",
            *([_line(view.reason, "cyan")] if remarks else []),
        )
    return table


def _line(text: str, style: str = "") -> Text:
    """Return a text that is cut where the room for it ends, never wrapped."""
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def headline(
    views: list[JobView],
    workers: int,
    usual_s: float | None,
    others: Mapping[JobState, int] = _NONE,
) -> str:
    """Return the counts of a sweep and the time that is left, in one line; see `live_table`."""
    counts = Counter(view.state for view in views)
    counts.update(others)
    text = ", ".join(f"{counts[state]:,} {state}" for state in JobState if counts[state])
    left = left_s(views, workers, usual_s, others)
    total = sum(counts.values())
    jobs = "1 job" if total == 1 else f"{total:,} jobs"
    text = f"{jobs}: {text}" if total else "no jobs"
    return text if left is None else f"{text}; about {duration(left)} left"


def left_s(
    views: list[JobView],
    workers: int,
    usual_s: float | None,
    others: Mapping[JobState, int] = _NONE,
) -> float | None:
    """Return the time that the sweep will still take [s], None if that is not known."""
    waiting = others.get(JobState.WAITING, 0)
    waiting += sum(view.state is JobState.WAITING for view in views)
    if waiting and usual_s is None:
        return None
    work = waiting * (usual_s or 0.0)
    for view in views:
        if view.state is JobState.RUNNING:
            left = view.progress.left_s(view.job.config.n_timesteps)
            if left is None:
                return None
            work += left
    return work / max(workers, 1) if work else None


def job_line(view: JobView, number: int, total: int) -> str:
    """Return what is said of a job that has ended."""
    head = f"[{number}/{total}] {view.job.title}"
    if view.state is JobState.FAILED:
        return f"{head}: failed: {view.reason} ({view.job.path / 'log.txt'})"
    best = "" if view.best is None else f", best {view.best:.1f}"
    seconds = "" if view.time_s is None else f" in {duration(view.time_s)}"
    return f"{head}: {view.progress.steps:,} steps{seconds}{best}"


def summary_table(rows: list[Row]) -> Table:
    """Return the table at the end; of hundreds of settings, those that come first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    has_settings = any(row.settings for row in rows)
    has_interval = any(row.best is not None and row.best.low is not None for row in rows)
    kind = "IQM, 95 %" if has_interval else "IQM"
    heads = ["environment", "algorithm", *(["settings"] if has_settings else []), "runs"]
    for name in (*heads, f"best ({kind})", f"final ({kind})", "time"):
        table.add_column(name)
    for row in rows[:_MOST_SUMMED]:
        others = [f"{row.n_failed} failed"] if row.n_failed else []
        others += [f"{row.n_open} open"] if row.n_open else []
        runs = str(row.n_done) + (f" ({', '.join(others)})" if others else "")
        cells = [row.env, row.algo, *([row.settings] if has_settings else []), runs]
        cells += [shown(row.best), shown(row.final), duration(row.time_s)]
        table.add_row(*(Text(cell) for cell in cells))
    if len(rows) > _MOST_SUMMED:
        table.add_row(Text(f"and {len(rows) - _MOST_SUMMED:,} more"))
    return table


def duration(seconds: float) -> str:
    """Return a time as `1:02:03`, `2:03` or `3.1 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def brief(count: int) -> str:
    """Return a number of steps in at most five characters: `4,096`, `51.2k`, `1.25M`."""
    if count < 10_000:
        return f"{count:,}"
    # What would be rounded to 1,000k is a million.
    if count < 999_500:
        return f"{count / 1e3:.3g}k"
    return f"{count / 1e6:.3g}M" if count < 999_500_000 else f"{count / 1e9:.3g}G"

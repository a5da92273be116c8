"""What a sweep prints: its planning, a live table or a line for each job, and the summary."""

from __future__ import annotations

import functools
import shlex
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlzoo_plus.analysis.estimates import shown
from rlzoo_plus.analysis.progress import Progress
from rlzoo_plus.analysis.run_list import counted, duration
from rlzoo_plus.analysis.variants import settings_labels, variant_values
from rlzoo_plus.config.cadence import trained_steps
from rlzoo_plus.sweeps.controller import Controller, Entry
from rlzoo_plus.sweeps.states import JobState, JobView, look_at, tell_causes, view_of
from rlzoo_plus.sweeps.summary import Row, few_seeds_note, summarise, write_summary

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.sweeps.launchers.launcher import Launcher
    from rlzoo_plus.sweeps.ledger import Ledger
    from rlzoo_plus.sweeps.sweep_job import SweepJob

_REDRAW_S, _REDRAW_BAR_S, _LINE_S = 0.5, 0.1, 5.0
_BAR = 24
# Fewer jobs are planned in a second.
_WORTH_A_BAR = 50
# Limits of what is printed: failed jobs by name, failed jobs and rows of the live table, and rows
# of the summary.
_MOST_NAMED, _MOST_FAILED, _MOST_ROWS, _MOST_SUMMED = 10, 3, 16, 50
# Lines besides the rows: counts, head, two lines for what is left out, and the failed jobs.
_OTHER_LINES = 4 + _MOST_FAILED
_NONE: Mapping[JobState, int] = {}


def drawn_in_place(console: Console) -> Live:
    """Return what draws a table in its place whenever it is told to."""
    from rich.live import Live

    return Live(console=console, auto_refresh=False, transient=True)


class LiveView:
    """A table that is drawn again and again in its place; nothing without a terminal."""

    _live: Live | None = None
    _drawn = 0.0

    def start_live(self, console: Console) -> None:
        """Begin to draw, until `__exit__`."""
        self._live = drawn_in_place(console)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def draw(self, make: Callable[[], RenderableType]) -> None:
        """Draw the table that `make` returns, if it is time."""
        now = time.monotonic()
        if self._live is not None and now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._live.update(make(), refresh=True)


class SweepView(LiveView):
    """Shows how a sweep is planned, checked and run; it is entered while jobs run.

    Planning and checking show a bar in a terminal, else a line at times. Drawing the jobs costs the
    same however many of them wait.
    """

    _jobs: list[SweepJob]

    def __init__(self, make_console: Callable[[], Console], *, may_draw: bool = True) -> None:
        """Show nothing yet.

        The console, which imports Rich, is made when it is needed. If nothing may be drawn, only
        lines about the jobs that ran are printed.
        """
        self._make_console, self._may_draw = make_console, may_draw
        self._counts = False

    @functools.cached_property
    def console(self) -> Console:
        """The console."""
        return self._make_console()

    def count(self, what: str, n_jobs: int) -> None:
        """Begin to count to `n_jobs`, e.g. `planning`; say so if it may take a while."""
        self._counts = self._may_draw and n_jobs >= _WORTH_A_BAR
        self._what, self._n_counted, self._n_to_count = what, 0, n_jobs
        self._counted = time.monotonic()
        if self._counts:
            self.console.print(f"{what} {n_jobs:,} jobs", markup=False)

    def advance(self) -> None:
        """Count a job."""
        if not self._counts:
            return
        self._n_counted += 1
        now, is_terminal = time.monotonic(), self.console.is_terminal
        if now - self._counted < (_REDRAW_BAR_S if is_terminal else _LINE_S):
            return
        self._counted = now
        text = f"{self._what}: {self._n_counted:,} of {self._n_to_count:,} jobs"
        if is_terminal:
            bar = "━" * (_BAR * self._n_counted // self._n_to_count)
            self._write_bar(f"{bar:{_BAR}} {text}"[: self.console.width - 1])
        else:
            self.console.print(text, markup=False)

    def end_count(self) -> None:
        """Remove the bar."""
        if self._counts and self.console.is_terminal:
            self._write_bar("")

    def _write_bar(self, text: str) -> None:
        # By hand: nothing has to be restored after it, whatever ends the command.
        self.console.file.write(f"\r\x1b[K{text}")
        self.console.file.flush()

    def begin(self, jobs: list[SweepJob], launcher: Launcher, notes: Sequence[str] = ()) -> None:
        """Print which jobs run, and where."""
        for note in notes:
            self.console.print(f"[yellow]note:[/] {note}")
        place = getattr(launcher, "place", None)
        where = f"{launcher.slots} at once" if place is None else f"for workers of {place}"
        self.console.print(
            f"sweep {jobs[0].sweep}: {counted(len(jobs), 'job')}, {where}", markup=False
        )
        self.expect(len(jobs), launcher)
        self._jobs = jobs

    def expect(self, total: int, launcher: Launcher) -> None:
        """Expect `total` jobs; print nothing."""
        self._launcher, self._total = launcher, total
        self._jobs = []
        self._n_ended = self._n_before = 0
        self._failed: deque[JobView] = deque(maxlen=_MOST_FAILED)
        self._times: list[float] = []

    def __enter__(self) -> SweepView:
        if self._may_draw and self.console.is_terminal and not self._launcher.shows_output:
            self.start_live(self.console)
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._print_done_before()

    def may_start(self, job: SweepJob) -> bool:
        """Return whether a job may start now; one that may not waits for another command."""
        del job
        return True

    def ended(self, entry: Entry) -> None:
        """Print how a job ended; of jobs that were done before, only their number."""
        self._n_ended += 1
        if entry.state is JobState.DONE and not entry.ran_s:
            self._n_before += 1
            return
        self._drawn = 0.0
        view = view_of(entry.job, entry.state, entry.reason)
        if entry.ran_s:
            self._times.append(entry.ran_s)
        is_failed = entry.state is JobState.FAILED
        if is_failed:
            self._failed.append(view)
        settings = self._settings.get(entry.job.key, "")
        line = job_line(view, self._n_ended, self._total, settings)
        self.console.print(line, markup=False, style="red" if is_failed else None)

    @functools.cached_property
    def _settings(self) -> dict[str, str]:
        """What sets each job's variant apart, by the job's key."""
        variants = {
            job.key: variant_values(job.config.model_dump(mode="json")) for job in self._jobs
        }
        return settings_labels(variants)

    def tick(self, controller: Controller) -> None:
        """Draw the table again, if it is time."""
        self._print_done_before()
        self.draw(lambda: self._table(controller))

    def show(self, running: list[JobView], counts: Counter[JobState]) -> None:
        """Draw jobs that run elsewhere, if it is time; `counts` are those of all jobs."""
        self._print_done_before()
        others = Counter(counts)
        others.subtract({JobState.RUNNING: len(running), JobState.FAILED: len(self._failed)})
        self.draw(lambda: self._live_table(running, max(len(running), 1), others))

    def _table(self, controller: Controller) -> Group:
        here, elsewhere = controller.active, controller.elsewhere
        views = [view_of(each.job.job, JobState.RUNNING) for each in here]
        there = "running in another process"
        views += [view_of(entry.job, JobState.RUNNING, there) for entry in elsewhere]
        others = Counter(controller.counts)
        others.subtract({JobState.RUNNING: len(here), JobState.WAITING: len(elsewhere)})
        others.subtract({JobState.FAILED: len(self._failed)})
        return self._live_table(views, self._launcher.slots, others)

    def _live_table(
        self, running: list[JobView], workers: int, others: Mapping[JobState, int]
    ) -> Group:
        return live_table(
            [*running, *self._failed],
            workers,
            sum(self._times) / len(self._times) if self._times else None,
            others=others,
            lines=self.console.height,
        )

    def _print_done_before(self) -> None:
        if self._n_before:
            self.console.print(f"{self._n_before} of {self._total} jobs were done already")
            self._n_before = 0


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
        workers: Number of jobs that run at once.
        usual_s: Time that a job takes, None if that is not known [s].
        others: Number of other jobs in each state.
        lines: Height of the terminal.
    """
    failed = [view for view in views if view.state is JobState.FAILED]
    running = [view for view in views if view.state is JobState.RUNNING]
    rows = running[: max(1, min(_MOST_ROWS, lines - _OTHER_LINES))]
    n_failed_before = len(failed) + others.get(JobState.FAILED, 0) - _MOST_FAILED
    below = [_line(f"and {len(running) - len(rows)} more", "dim")] if running[len(rows) :] else []
    below += [_line(f"and {n_failed_before} failed before", "red")] if n_failed_before > 0 else []
    for view in failed[-_MOST_FAILED:]:
        below.append(_line(f"failed: {view.job.title}: {view.reason}", "red"))
    # Where there is little room, names and remarks are cut, numbers are not.
    table = progress_table("algorithm", "environment")
    if has_remarks := any(view.reason for view in rows):
        table.add_column("")
    for view in rows:
        config = view.job.config
        names = [_line(config.algo.name), _line(str(config.env.name))]
        remark = [_line(view.reason, "cyan")] if has_remarks else []
        table.add_row(*names, *progress_cells(config, view.progress), *remark)
    head = _line(headline(views, workers, usual_s, others), "bold")
    return Group(head, *([table] if rows else []), *below)


def _line(text: str, style: str = "") -> Text:
    """Return a text that is cut where the room for it ends, never wrapped."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def progress_table(*names: str) -> Table:
    """Return an empty table with columns of these names, then those of `progress_cells`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name)
    # Wide enough from the beginning, so that the columns do not jump.
    for name, width in (("seed", 4), ("steps", 11), ("steps/s", 7), ("left", 7), ("return", 7)):
        table.add_column(name, no_wrap=True, min_width=width)
    return table


def progress_cells(config: RunConfig, progress: Progress) -> list[str]:
    """Return what a row of `progress_table` shows of a run behind its names."""
    steps = trained_steps(config)
    left = progress.left_s(steps)
    return [
        str(config.seed),
        f"{brief(progress.steps)}/{brief(steps)}",
        "-" if progress.rate is None else f"{progress.rate:,.0f}",
        "-" if left is None else duration(left),
        "-" if progress.mean_return is None else f"{progress.mean_return:.1f}",
    ]


def headline(
    views: list[JobView],
    workers: int,
    usual_s: float | None,
    others: Mapping[JobState, int] = _NONE,
) -> str:
    """Return the counts of a sweep and the time that is left, on one line; see `live_table`."""
    counts = Counter(view.state for view in views)
    counts.update(others)
    total = sum(counts.values())
    if not total:
        return "no jobs"
    text = ", ".join(f"{counts[state]:,} {state}" for state in JobState if counts[state])
    running = [view for view in views if view.state is JobState.RUNNING]
    left = [view.progress.left_s(trained_steps(view.job.config)) for view in running]
    left += [usual_s] * counts[JobState.WAITING]
    if None not in left and any(left):
        text += f"; about {duration(sum(filter(None, left)) / max(workers, 1))} left"
    return f"{counted(total, 'job')}: {text}"


def job_line(view: JobView, number: int, total: int, settings: str = "") -> str:
    """Return a line about a job that ended; `settings` sets its variant apart from others."""
    head = f"[{number}/{total}] {view.job.title}{f', {settings}' if settings else ''}"
    if view.state is JobState.FAILED:
        return f"{head}: failed: {view.reason} ({view.job.path / 'log.txt'})"
    best = "" if view.best is None else f", best {view.best:.1f}"
    seconds = "" if view.time_s is None else f" in {duration(view.time_s)}"
    return f"{head}: {view.progress.steps:,} steps{seconds}{best}"


def summary_table(rows: list[Row]) -> Table:
    """Return the table at the end; of hundreds of settings, the first ones."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    has_settings = any(row.settings for row in rows)
    kind = "IQM, 95 %"
    heads = ["environment", "algorithm", *(["settings"] if has_settings else []), "runs"]
    for name in (*heads, f"best ({kind})", f"final ({kind})", "time"):
        table.add_column(name)
    for row in rows[:_MOST_SUMMED]:
        counts = {"failed": row.n_failed, "open": row.n_open}
        others = [f"{count} {what}" for what, count in counts.items() if count]
        runs = str(row.n_done) + (f" ({', '.join(others)})" if others else "")
        cells = [row.env, row.algo, *([row.settings] if has_settings else []), runs]
        cells += [shown(row.best), shown(row.final), duration(row.time_s)]
        table.add_row(*(Text(cell) for cell in cells))
    if len(rows) > _MOST_SUMMED:
        table.add_row(Text(f"and {len(rows) - _MOST_SUMMED:,} more"))
    return table


def brief(count: int) -> str:
    """Return a number of steps in at most five characters: `4,096`, `51.2k`, `1.25M`."""
    if count < 10_000:
        return f"{count:,}"
    # What would be rounded to 1,000k is a million.
    if count < 999_500:
        return f"{count / 1e3:.3g}k"
    return f"{count / 1e6:.3g}M" if count < 999_500_000 else f"{count / 1e9:.3g}G"


def print_summary(ledger: Ledger, jobs: list[SweepJob], console: Console) -> None:
    """Write the files of the whole sweep, print the rows with one of these jobs, and what next."""
    views = look_at(ledger.read())
    rows = summarise(views)
    files = write_summary(ledger.sweep, views, rows)
    keys = {job.key for job in jobs}
    mine = [view for view in views if view.job.key in keys]
    concerned = {(str(view.job.config.env.name), view.job.config.algo.name) for view in mine}
    console.print()
    print_rows([row for row in rows if (row.env, row.algo) in concerned], console)
    print_failed(mine, console)
    console.print(f"summary: {files[-1]}", markup=False)
    states = {view.state for view in views}
    following, sweep = "", shlex.quote(str(ledger.sweep))
    if JobState.FAILED in states:
        following = f"sweep retry-failed {sweep}"
    elif JobState.WAITING in states:
        following = f"sweep resume {sweep}"
    elif any(row.best_run for row in rows):
        following = f"plot {sweep} --out curves.png"
    if following:
        console.print(f"next: rlzoo-plus {following}", markup=False)


def print_rows(rows: list[Row], console: Console) -> None:
    """Print the table of a sweep's outcome, and a warning if it is over too few seeds."""
    console.print(summary_table(rows))
    note = few_seeds_note(rows)
    if note is not None:
        console.print(f"[yellow]note:[/] {note}")


def print_failed(views: list[JobView], console: Console) -> None:
    """Print which jobs failed: a line each, or of many a line for each cause."""
    failed = [view for view in views if view.state is JobState.FAILED]
    if len(failed) > _MOST_NAMED:
        lines = tell_causes((view.reason for view in failed), len(views))
    else:
        lines = [f"{view.job.key}: {view.reason}" for view in failed]
    for line in lines:
        console.print(f"failed: {line}", markup=False, style="red")


def state_of(views: list[JobView], lines: int, *, on_one_line: bool = False) -> RenderableType:
    """Return how far a stored sweep is: a table if jobs run, else a line; see `live_table`."""
    n_running = sum(view.state is JobState.RUNNING for view in views)
    times = [view.time_s for view in views if view.time_s]
    usual = sum(times) / len(times) if n_running and times else None
    if on_one_line or not n_running:
        return headline(views, n_running, usual)
    return live_table(views, n_running, usual, lines=lines)

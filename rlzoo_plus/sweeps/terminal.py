"""What a sweep prints: how far its planning is, a table or lines of its jobs, the summary."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.sweeps.controller import Controller, Entry
from rlzoo_plus.sweeps.multirun import Listener
from rlzoo_plus.sweeps.states import JobState, JobView, look_at, tell_causes, view_of
from rlzoo_plus.sweeps.summary import Row, few_seeds_note, summarise, write_summary
from rlzoo_plus.sweeps.table import MOST_FAILED, headline, job_line, live_table, summary_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.sweeps.ledger import Ledger

_REDRAW_S = 0.5
_MOST_NAMED = 10
# Fewer jobs are planned in a second.
_WORTH_A_LINE = 50
_REDRAW_BAR_S, _LINE_S = 0.1, 5.0
_BAR = 24


class CountBar:
    """One count through the jobs of a sweep: a bar in a terminal, else a line now and then."""

    def __init__(self, console: Console, what: str, n_jobs: int) -> None:
        """Say what begins, if it may take a while.

        Args:
            console: Where.
            what: What is done to each job, e.g. `planning`.
            n_jobs: Number of jobs.
        """
        self._console, self._what, self._total = console, what, n_jobs
        self._is_quiet = n_jobs < _WORTH_A_LINE
        self._done = 0
        self._drawn = time.monotonic()
        if not self._is_quiet:
            console.print(f"{what} {n_jobs:,} jobs", markup=False)

    def advance(self) -> None:
        """Count a job."""
        self._done += 1
        now = time.monotonic()
        wait = _REDRAW_BAR_S if self._console.is_terminal else _LINE_S
        if self._is_quiet or now - self._drawn < wait:
            return
        self._drawn = now
        text = f"{self._what}: {self._done:,} of {self._total:,} jobs"
        if not self._console.is_terminal:
            self._console.print(text, markup=False)
            return
        full = _BAR * self._done // self._total
        bar = "━" * full + " " * (_BAR - full)
        # Nothing has to be restored after it, whatever ends the command.
        self._write(f"\r\x1b[K{bar} {text}"[: self._console.width + 3])

    def end(self) -> None:
        """Take the bar away."""
        if self._console.is_terminal and not self._is_quiet:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


class CountView(Listener):
    """Shows how far the planning and the checking of a sweep's jobs are."""

    def __init__(self, make_console: Callable[[], Console], *, may_draw: bool = True) -> None:
        """Show nothing yet.

        Args:
            make_console: Makes the console when it is needed, which imports Rich.
            may_draw: Whether a terminal gets a bar and a table, which are drawn again in their
                place; if not, there are lines only, of what was run.
        """
        self._make_console, self._may_draw = make_console, may_draw
        self._console: Console | None = None
        self._bar: CountBar | None = None

    @property
    def console(self) -> Console:
        """Where to."""
        if self._console is None:
            self._console = self._make_console()
        return self._console

    def count(self, what: str, n_jobs: int) -> None:
        """Begin a count."""
        if self._may_draw:
            self._bar = CountBar(self.console, what, n_jobs)

    def advance(self) -> None:
        """Count a job."""
        if self._bar is not None:
            self._bar.advance()

    def end_count(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.end()


class SweepView(CountView):
    """Shows the jobs of a sweep; drawing costs the same however many of them wait."""

    def begin(self, jobs: list[SweepJob], launcher: Launcher, notes: Sequence[str] = ()) -> None:
        """Say what is run, and where."""
        for note in notes:
            self.console.print(f"[yellow]note:[/] {note}")
        self.console.print(
            f"sweep {jobs[0].sweep}: {len(jobs):,} jobs, {launcher.slots} at once", markup=False
        )
        self.expect(len(jobs), launcher)

    def expect(self, total: int, launcher: Launcher) -> None:
        """Begin with so many jobs, without a word."""
        self._launcher, self._total = launcher, total
        self._n_ended = self._n_before = 0
        self._drawn = 0.0
        self._live: Live | None = None
        self._failed: deque[JobView] = deque(maxlen=MOST_FAILED)
        self._times: list[float] = []

    def __enter__(self) -> SweepView:
        if self._may_draw and self.console.is_terminal and not self._launcher.shows_output:
            from rich.live import Live

            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._say_done_before()

    def ended(self, entry: Entry) -> None:
        """Say how a job ended; of what was done before, only how much it was."""
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
        line = job_line(view, self._n_ended, self._total)
        self.console.print(line, markup=False, style="red" if is_failed else None)

    def tick(self, controller: Controller) -> None:
        """Draw the table again, if it is time."""
        now = time.monotonic()
        self._say_done_before()
        if self._live is None or now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        here, elsewhere = controller.running, controller.elsewhere
        views = [view_of(entry.job, JobState.RUNNING) for entry in here]
        views += [
            view_of(entry.job, JobState.RUNNING, "running in another process")
            for entry in elsewhere
        ]
        others = Counter(controller.counts)
        others.subtract({JobState.RUNNING: len(here), JobState.WAITING: len(elsewhere)})
        others.subtract({JobState.FAILED: len(self._failed)})
        usual = sum(self._times) / len(self._times) if self._times else None
        table = live_table(
            [*views, *self._failed],
            self._launcher.slots,
            usual,
            others=others,
            lines=self.console.height,
        )
        self._live.update(table, refresh=True)

    def _say_done_before(self) -> None:
        if self._n_before:
            self.console.print(f"{self._n_before} of {self._total} jobs were done already")
            self._n_before = 0


def print_summary(ledger: Ledger, jobs: list[SweepJob], console: Console) -> None:
    """Write the files of the whole sweep, and print the rows with one of these jobs."""
    views = look_at(ledger.read())
    rows = summarise(views)
    files = write_summary(ledger.sweep, views, rows)
    console.print()
    mine = {job.key for job in jobs}
    concerned = {_group(view) for view in views if view.job.key in mine}
    print_rows([row for row in rows if (row.env, row.algo) in concerned], console)
    print_failed([view for view in views if view.job.key in mine], console)
    console.print(f"summary: {files[-1]}", markup=False)
    _print_next_steps(ledger.sweep, views, rows, console)


def print_rows(rows: list[Row], console: Console) -> None:
    """Print the table of a sweep's outcome, and a warning if it is over too few seeds."""
    console.print(summary_table(rows))
    note = few_seeds_note(rows)
    if note is not None:
        console.print(f"[yellow]note:[/] {note}")


def print_failed(views: list[JobView], console: Console) -> None:
    """Say which jobs failed: a line each, or of many a line for each cause."""
    failed = [view for view in views if view.state is JobState.FAILED]
    if len(failed) > _MOST_NAMED:
        lines = tell_causes((view.reason for view in failed), len(views))
    else:
        lines = [f"{view.job.key}: {view.reason}" for view in failed]
    for line in lines:
        console.print(f"failed: {line}", markup=False, style="red")


def print_state(views: list[JobView], console: Console) -> None:
    """Print how far a sweep is: a table if jobs run, else a line."""
    running = sum(view.state is JobState.RUNNING for view in views)
    if running:
        console.print(live_table(views, running, usual_s(views), lines=console.height))
    else:
        console.print(headline(views, 1, None))


def usual_s(views: list[JobView]) -> float | None:
    """Return the time that a job takes [s], None if none has ended."""
    times = [view.time_s for view in views if view.time_s]
    return sum(times) / len(times) if times else None


def _print_next_steps(sweep: Path, views: list[JobView], rows: list[Row], console: Console) -> None:
    states = {view.state for view in views}
    if JobState.FAILED in states:
        console.print(f"next: rlzoo-plus sweep retry-failed {sweep}", markup=False)
    elif JobState.WAITING in states:
        console.print(f"next: rlzoo-plus sweep resume {sweep}", markup=False)
    elif any(row.best_run for row in rows):
        console.print(f"next: rlzoo-plus plot {sweep} --out curves.png", markup=False)


def _group(view: JobView) -> tuple[str, str]:
    return str(view.job.config.env.name), view.job.config.algo.name

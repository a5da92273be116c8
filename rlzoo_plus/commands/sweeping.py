"""Running the jobs of a sweep before the eyes of a user: table or lines, and the summary."""

from __future__ import annotations

import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.console import start_live
from rlzoo_plus.sweeps.causes import tell_causes
from rlzoo_plus.sweeps.controller import Controller, Entry
from rlzoo_plus.sweeps.states import JobState, JobView, look_at, view_of
from rlzoo_plus.sweeps.summary import Row, few_seeds_note, summarise, write_summary
from rlzoo_plus.sweeps.table import (
    MOST_FAILED,
    headline,
    job_line,
    live_table,
    summary_table,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.sweeps.ledger import Ledger

PRELOAD = ("rlzoo_plus.preload",)
_REDRAW_S = 0.5
_MOST_NAMED = 10


def launcher_for(configs: list[RunConfig]) -> Launcher:
    """Return the launcher of a sweep; the first job says which, and how many at once."""
    from rlzoo_plus.infra.launcher import make_launcher

    threads = max(busy_cores(config) for config in configs)
    return make_launcher(configs[0].infra, threads, PRELOAD)


def run_jobs(
    book: Ledger, jobs: list[SweepJob], launcher: Launcher, console: Console
) -> tuple[int, list[Entry]]:
    """Run jobs, show how they do, and return the exit code and what became of them."""
    view = _View(console, launcher, len(jobs))
    controller = Controller(book, jobs, launcher, view.ended, view.tick)
    view.controller = controller
    with view:
        code = controller.run()
    return code, controller.entries


def print_summary(book: Ledger, jobs: list[SweepJob], console: Console) -> None:
    """Write the files of the whole sweep, and print the rows with one of these jobs."""
    views = look_at(book.read())
    rows = summarise(views)
    files = write_summary(book.sweep, views, rows)
    console.print()
    mine = {job.key for job in jobs}
    concerned = {_group(view) for view in views if view.job.key in mine}
    print_rows([row for row in rows if (row.env, row.algo) in concerned], console)
    print_failed([view for view in views if view.job.key in mine], console)
    console.print(f"summary: {files[-1]}", markup=False)
    next_steps(book.sweep, views, rows, console)


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


def next_steps(sweep: Path, views: list[JobView], rows: list[Row], console: Console) -> None:
    """Say what can be typed next."""
    states = {view.state for view in views}
    if JobState.FAILED in states:
        console.print(f"next: rlzoo-plus sweep retry-failed {sweep}", markup=False)
    elif JobState.WAITING in states:
        console.print(f"next: rlzoo-plus sweep resume {sweep}", markup=False)
    elif any(row.best_run for row in rows):
        console.print(f"next: rlzoo-plus plot {sweep} --out curves.png", markup=False)


def _group(view: JobView) -> tuple[str, str]:
    return str(view.job.config.env.name), view.job.config.algo.name


def busy_cores(config: RunConfig) -> int:
    """Return how many cores a run keeps busy."""
    threads = 1 if config.num_threads == "auto" else int(config.num_threads)
    return max(threads, config.n_envs if config.vec_env == "subproc" else 1)


class _View:
    """The terminal while a controller works; drawing it costs the same however many jobs wait."""

    def __init__(self, console: Console, launcher: Launcher, total: int) -> None:
        self.console = console
        self.launcher = launcher
        self.total = total
        self.controller: Controller | None = None
        self._n_ended = 0
        self._n_before = 0
        self._drawn = 0.0
        self._live: Live | None = None
        self._failed: deque[JobView] = deque(maxlen=MOST_FAILED)
        self._times: list[float] = []

    def __enter__(self) -> _View:
        if self.console.is_terminal and not self.launcher.shows_output:
            self._live = start_live(self.console)
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
        if entry.state is JobState.FAILED:
            self._failed.append(view)
        line = job_line(view, self._n_ended, self.total)
        self.console.print(
            line, markup=False, style="red" if entry.state is JobState.FAILED else None
        )

    def tick(self) -> None:
        """Draw the table again, if it is time."""
        now = time.monotonic()
        self._say_done_before()
        if self._live is None or now - self._drawn < _REDRAW_S or self.controller is None:
            return
        self._drawn = now
        here, elsewhere = self.controller.running, self.controller.elsewhere
        views = [view_of(entry.job, JobState.RUNNING) for entry in here]
        views += [
            view_of(entry.job, JobState.RUNNING, "running in another process")
            for entry in elsewhere
        ]
        others = Counter(self.controller.counts)
        others.subtract({JobState.RUNNING: len(here), JobState.WAITING: len(elsewhere)})
        others.subtract({JobState.FAILED: len(self._failed)})
        usual = sum(self._times) / len(self._times) if self._times else None
        table = live_table(
            [*views, *self._failed],
            self.launcher.slots,
            usual,
            others=others,
            lines=self.console.height,
        )
        self._live.update(table, refresh=True)

    def _say_done_before(self) -> None:
        if self._n_before:
            self.console.print(f"{self._n_before} of {self.total} jobs were done already")
            self._n_before = 0


def print_state(views: list[JobView], console: Console) -> None:
    """Print what `sweep status` shows."""
    running = sum(view.state is JobState.RUNNING for view in views)
    times = [view.time_s for view in views if view.time_s]
    usual = sum(times) / len(times) if times else None
    if running:
        console.print(live_table(views, running, usual, lines=console.height))
    else:
        console.print(headline(views, 1, None))

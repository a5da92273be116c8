"""Trains what is missing of a suite: one sweep of all its cells and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.hydra_app import compose_jobs
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.store.lease import FINISHED
from rlzoo_plus.suites.budget import Budget
from rlzoo_plus.suites.suite_file import Cell, Suite
from rlzoo_plus.suites.suite_results import Results, collect
from rlzoo_plus.sweeps.controller import Entry
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher
from rlzoo_plus.sweeps.multirun import Multirun, launcher_for, start_early
from rlzoo_plus.sweeps.states import JobState
from rlzoo_plus.sweeps.sweep_job import SweepJob
from rlzoo_plus.sweeps.sweep_view import SweepView

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.composer import Batch, Composed
    from rlzoo_plus.sweeps.launchers.launcher import Launcher


class SuiteRun(Multirun):
    """The sweep of a suite: `execute` trains what is missing, and collects the results."""

    def __init__(
        self,
        suite: Suite,
        cells: Sequence[Cell],
        seeds: Sequence[int],
        overrides: Sequence[str],
        results: Results,
        make_console: Callable[[], Console],
        *,
        hours: float | None = None,
        trains: bool = True,
        trust: bool = False,
    ) -> None:
        """Begin with the cells that are wanted.

        Args:
            suite: The suite.
            cells: Its cells to train.
            seeds: The seeds of each cell.
            overrides: For all runs; those of a cell come before them.
            results: Where results are kept; what is there already is not trained again.
            make_console: Returns the console.
            hours: No run starts that is not expected to end in this time; None: all.
            trains: Else only the results of finished runs are collected.
            trust: Import what this project does not ship where the policy of a run needs it.
        """
        self.results, self._suite, self._trains, self._trust = results, suite, trains, trust
        words = [f"sweep=benchmark-{suite.name}", *overrides]
        super().__init__(words, _View(self, make_console))
        self._cells, self._seeds = cells, seeds
        self._cell = cells[0]
        self._cell_of: dict[tuple[str, int], Cell] = {}
        self._hours = hours
        self.budget: Budget | None = None

    def train(self) -> int:
        """Train what is missing; return 0, 1 if a run failed, 75 or 130 if it was stopped."""
        if self._trains:
            start_early(self.arguments)
        self.execute(self._compose)
        return self.code

    def cell_of(self, job: SweepJob) -> Cell:
        """Return the cell of a job."""
        return self._cell_of[_identity(job)]

    def collect(self, composed: Composed) -> None:
        """Take a configuration of the present cell."""
        super().collect(composed)
        if self._batch:
            self._cell_of[_identity(self._batch[-1])] = self._cell

    def collect_results(self, jobs: Sequence[SweepJob], launcher: Launcher) -> None:
        """Let the policies of finished jobs play, as far as they have not."""
        if isinstance(launcher, WorkersLauncher) and not getattr(
            launcher.settings, "dry_run", False
        ):
            live = launcher.submitter.live()
            for job in self._missing(jobs):
                # A sweep brings no policies home.
                if job.key in live and live[job.key].state == FINISHED:
                    _bring(job, launcher)
        pairs = [(self.cell_of(job), job) for job in jobs]
        collect(self._suite, pairs, self.results, self._say, trust=self._trust)

    def _compose(
        self, take: Callable[[Composed], None], words: Sequence[str], batch: Batch
    ) -> None:
        seeds = f"seed={','.join(map(str, self._seeds))}"
        compose_jobs(take, [*words, seeds], batch, self._words_of_cells())

    def _words_of_cells(self) -> Iterator[list[str]]:
        for cell in self._cells:
            # `collect` gets the jobs of this one until the next is asked for.
            self._cell = cell
            yield cell.words

    def _check(self, jobs: list[SweepJob]) -> Launcher | None:
        if self._trains or self._mistakes:
            return super()._check(jobs)
        # What has trained needs no environment tried.
        return launcher_for([job.config for job in jobs]) if jobs else None

    def _missing(self, jobs: Sequence[SweepJob]) -> list[SweepJob]:
        return [
            job
            for job in jobs
            if not self.results.has((self.cell_of(job).name, job.config.seed), job)
        ]

    def _run(self, jobs: list[SweepJob], launcher: Launcher) -> None:
        self.collect_results(jobs, launcher)
        waiting = self._missing(jobs)
        self._say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs have a result")
        if not self._trains or not waiting:
            return
        if self._hours is not None:
            waiting = self._within_budget(jobs, waiting, launcher)
        if waiting:
            super()._run(waiting, launcher)
            self.collect_results(waiting, launcher)
        if self.budget is not None and self.budget.too_long:
            names = dict.fromkeys(self.cell_of(job).name for job in self.budget.too_long)
            self._say(
                f"not started, they would not end within the budget: {len(self.budget.too_long)} "
                f"runs of {', '.join(names)}; the same command goes on"
            )

    def _within_budget(
        self, jobs: Sequence[SweepJob], waiting: list[SweepJob], launcher: Launcher
    ) -> list[SweepJob]:
        """Return jobs in the order in which they may start."""
        assert self._hours is not None
        self.budget = Budget(self._hours, lambda job: self.cell_of(job).name)
        self._say("measuring how fast these cells train here, some seconds each ...")
        self.budget.learn([job for job in jobs if job.is_finished()], waiting)
        ordered = self.budget.order(waiting)
        self._say(self.budget.text(ordered, launcher.slots))
        fitting = self.budget.fitting(ordered, launcher.slots)
        # Here, a run starts if there is time left when its turn comes; workers get all at once.
        if fitting and not isinstance(launcher, WorkersLauncher):
            return ordered
        self.budget.too_long += [job for job in ordered if job not in fitting]
        return fitting

    def _say(self, text: str) -> None:
        self.view.console.print(text, markup=False)


class _View(SweepView):
    """Keeps to the budget, and collects the result of each run when it has ended."""

    def __init__(self, suite_run: SuiteRun, make_console: Callable[[], Console]) -> None:
        super().__init__(make_console)
        self._suite_run = suite_run

    def may_start(self, job: SweepJob) -> bool:
        """Return whether the budget lets a run start."""
        budget = self._suite_run.budget
        return budget is None or budget.may_start(job)

    def ended(self, entry: Entry) -> None:
        """Say how a run ended, and let its policy play."""
        super().ended(entry)
        if entry.state is not JobState.DONE:
            return
        if self._suite_run.budget is not None:
            self._suite_run.budget.ended(entry.job, entry.ran_s)
        try:
            self._suite_run.collect_results([entry.job], self._launcher)
        except (ConfigError, RunError) as error:
            # The other runs go on; it is told again at the end.
            self.console.print(f"{entry.job.title}: {error}", markup=False, style="red")


def _bring(job: SweepJob, launcher: WorkersLauncher) -> None:
    try:
        job.check_place()
        launcher.bring(job.key, job.path, job.config)
    except DamagedFolderError as error:
        raise ConfigError(f"{job.title}: {one_line(error)}.") from error


def _identity(job: SweepJob) -> tuple[str, int]:
    # Not its directory: a run that was extended has that of the shorter one.
    return config_hash(job.config), job.config.seed

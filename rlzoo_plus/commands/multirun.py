"""`rlzoo-plus train -m`: collect the jobs that Hydra makes, check them all, then run them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.planning import Planning
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.runs.compose import Resolver

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.sweeps.job import SweepJob


class _Stopped(Exception):  # noqa: N818
    """A signal ended the sweep: no further batch is wanted."""


def main(arguments: list[str]) -> int:
    """Run the sweep; return 0, 1 if a job failed, 75 or 130 if it was stopped."""
    from rlzoo_plus.config.compose import run_hydra

    refuse_shared_directory(arguments)
    _start_early(arguments)
    sweep = Multirun(arguments)
    try:
        run_hydra(sweep.collect, arguments, sweep)
        # Another launcher only collects.
        sweep.run()
    except _Stopped:
        pass
    sweep.finish()
    return sweep.code


def _start_early(arguments: list[str]) -> None:
    """Let the processes that jobs come from import torch while Hydra composes the jobs."""
    from rlzoo_plus.config.compose import iter_sweep_keys
    from rlzoo_plus.diagnosis.command_line import is_search

    elsewhere = {"infra", "infra.name", "hydra/launcher"} & set(iter_sweep_keys(arguments))
    asking = ("-c", "--cfg", "--info", "--hydra-help")
    only_asks = any(word.partition("=")[0] in asking for word in arguments)
    if (elsewhere and "infra=local" not in arguments) or only_asks or not hasattr(os, "setsid"):
        return
    from rlzoo_plus.infra.local import start_server

    if is_search(arguments):
        from rlzoo_plus.commands.tuning import PRELOAD
    else:
        from rlzoo_plus.commands.sweeping import PRELOAD
    start_server(PRELOAD)


def refuse_shared_directory(arguments: list[str]) -> None:
    """Refuse a directory for all jobs together.

    Raises:
        ConfigError: There is one.
    """
    from rlzoo_plus.config.compose import iter_sweep_keys

    if "run_dir" in set(iter_sweep_keys(arguments)):
        raise ConfigError(
            "run_dir=... would be shared by all jobs of a sweep. Leave it out: each job gets a "
            "directory of its own, below sweep=NAME."
        )


class Multirun:
    """The jobs of one command, in one or more batches."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.code = 0
        self.jobs: list[SweepJob] = []
        self._batch: list[SweepJob] = []
        self._notes: list[str] = []
        self._mistakes: list[str] = []
        self._n_seen = 0
        self._resolver = Resolver(arguments)
        self._planning: Planning | None = None
        self._console: Console | None = None

    def begin(self, n_jobs: int) -> None:
        """Say that so many jobs are planned now, until `run` is called."""
        self._planning = Planning(self._console_of_planning(), "planning", n_jobs)

    def collect(self, composed: Composed) -> None:
        """Check the configuration of a job and put it into the batch."""
        from rlzoo_plus.sweeps.job import make_job

        self._count()
        try:
            config, notes = self._resolver.resolve(composed)
        except ConfigError as error:
            self._mistakes.append(str(error))
            return
        self._notes += notes
        job = make_job(config)
        self._batch.append(replace(job, command=_command(self.arguments, composed, job)))

    def refuse(self, error: Exception, overrides: Sequence[str]) -> None:
        """Keep the reason why a configuration cannot be composed."""
        from rlzoo_plus.config.compose import explain

        self._count()
        self._mistakes.append(explain(error, self.arguments))

    def run(self) -> list[float | None]:
        """Run the batch; return the mean return of each job's best evaluation.

        Raises:
            ConfigError: It names all mistakes, in any job; none has begun.
        """
        self._end_planning()
        batch, self._batch = self._batch, []
        # What differs only in what is shown is the same run.
        jobs = list({job.key: job for job in batch}.values())
        self._check(jobs)
        if jobs:
            self._run(jobs, n_same=len(batch) - len(jobs))
        found = {job.key: job.run_dir.read_result().get("best") for job in jobs}
        return [(found[job.key] or {}).get("mean_return") for job in batch]

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Search for values instead; the command line is taken as it was typed."""
        from rlzoo_plus.commands.tuning import run_study

        self.code = run_study(self.arguments, compose)

    def finish(self) -> None:
        """Write and print the summary."""
        if self.jobs and self._console is not None:
            from rlzoo_plus.commands.sweeping import print_summary
            from rlzoo_plus.sweeps.ledger import Ledger

            print_summary(Ledger(self.jobs[0].sweep), self.jobs, self._console)

    def _count(self) -> None:
        self._n_seen += 1
        if self._planning is not None:
            self._planning.advance()

    def _end_planning(self) -> None:
        if self._planning is not None:
            self._planning.end()

    def _console_of_planning(self) -> Console:
        from rlzoo_plus.commands.console import make_console

        self._console = self._console or make_console()
        return self._console

    def _check(self, jobs: list[SweepJob]) -> None:
        from rlzoo_plus.diagnosis.refusals import Refusals
        from rlzoo_plus.sweeps.causes import tell_causes

        together = several_sweeps([*self.jobs, *jobs])
        if not self._mistakes and not together:
            from rlzoo_plus.commands.sweeping import launcher_for

            # Its processes import torch while the environments are tried here.
            self._launcher = launcher_for([job.config for job in jobs]) if jobs else None
        known = Refusals()
        checking = Planning(self._console_of_planning(), "checking", len(jobs))
        for job in jobs:
            self._mistakes += known.of(job.config)
            checking.advance()
        checking.end()
        if self._mistakes or together:
            raise ConfigError("\n".join([*together, *tell_causes(self._mistakes, self._n_seen)]))

    def _run(self, jobs: list[SweepJob], n_same: int) -> None:
        from rlzoo_plus.commands.console import make_console
        from rlzoo_plus.commands.sweeping import run_jobs
        from rlzoo_plus.sweeps.ledger import Ledger

        assert self._launcher is not None
        self._console = self._console or make_console()
        make_sweep_dir(jobs[0].sweep)
        notes, self._notes = list(dict.fromkeys(self._notes)), []
        if n_same:
            notes.append(f"{n_same} of the jobs are the same run as another one")
        for note in notes:
            self._console.print(f"[yellow]note:[/] {note}")
        self._console.print(
            f"sweep {jobs[0].sweep}: {len(jobs):,} jobs, {self._launcher.slots} at once",
            markup=False,
        )
        book = Ledger(jobs[0].sweep)
        jobs = [_restarted(job) for job in jobs]
        book.add(jobs)
        self.jobs += jobs
        code, _ = run_jobs(book, jobs, self._launcher, self._console)
        self.code = max(self.code, code)
        if code > 1:
            raise _Stopped


def several_sweeps(jobs: list[SweepJob]) -> list[str]:
    """Return what is wrong if jobs do not belong to one sweep."""
    names = sorted({str(job.sweep) for job in jobs})
    if len(names) < 2:
        return []
    return [f"sweep: the jobs are of several sweeps ({', '.join(names)}). Give one sweep=NAME."]


def make_sweep_dir(path: Path) -> None:
    """Make the directory of a sweep.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"sweep={path} cannot be made: {error}") from error


def _command(arguments: list[str], composed: Composed, job: SweepJob) -> str:
    """Return the command line that runs a job alone: the same run, in the same place."""
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.config.compose import config_options, iter_sweep_keys

    words = [word.removeprefix("++") for word in composed.overrides]
    # The only one of Hydra's own words that decides what a job is.
    words += [word for word in composed.hydra_overrides if "hydra.searchpath=" in word]
    ours = ("sweep", "num_threads", "restart")
    kept = [word for word in words if not set(iter_sweep_keys([word])) & set(ours)]
    placed = [f"num_threads={job.config.num_threads}", f"run_dir={job.path}"]
    return command_line(["rlzoo-plus", "train", *config_options(arguments), *kept, *placed])


def _restarted(job: SweepJob) -> SweepJob:
    """Move an earlier run aside if restart=true, here, so that it happens once."""
    from rlzoo_plus.runs.claim import move_aside

    if not job.config.restart:
        return job
    run_dir = job.run_dir
    job.check_place()
    if run_dir.has_begun():
        with run_dir.lock as lock:
            if not lock.acquire():
                raise ConfigError(f"restart=true: another process is training in {job.path}.")
            move_aside(run_dir)
    return replace(job, config=job.config.model_copy(update={"restart": False}))

"""The jobs of one command with `-m`: collected as Hydra composes them, checked, and run."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.config.catalog import ON_WORKERS
from rlzoo_plus.config.overrides import config_options, typed_values
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import Resolver
from rlzoo_plus.runs.train_job import move_aside
from rlzoo_plus.store.cache import forget_store
from rlzoo_plus.sweeps.controller import Controller
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.launchers.local import start_server
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.refusals import Refusals
from rlzoo_plus.sweeps.states import tell_causes
from rlzoo_plus.sweeps.submitting import prepare, submit_jobs
from rlzoo_plus.sweeps.sweep_job import SweepJob, busy_cores, make_job, sweep_dir

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.sweeps.launchers.launcher import Launcher
    from rlzoo_plus.sweeps.sweep_view import SweepView

    Compose = Callable[[Callable[[Composed], None], Sequence[str], "Multirun"], None]
    Tune = Callable[[Callable[[Sequence[str]], Composed]], int]

PRELOAD = ("rlzoo_plus.runs.preload",)
MULTIRUN = ("-m", "--multirun")


class SweepStopped(Exception):  # noqa: N818
    """A signal ended the sweep: no further batch is wanted."""


class Multirun:
    """The jobs of one command, in one or more batches."""

    def __init__(
        self,
        arguments: list[str],
        view: SweepView,
        tune: Tune | None = None,
        *,
        takes_signals: bool = True,
    ) -> None:
        """Begin with a command line.

        `tune` runs the study that `hpo=...` asks for, given a function that composes overrides, and
        returns an exit code. For `takes_signals` see `Scheduler`.
        """
        self.arguments, self.view = arguments, view
        self.code = 0
        # Whether runs go on without this command: workers train them.
        self.is_left = False
        self.jobs: list[SweepJob] = []
        self._tune, self._takes_signals = tune, takes_signals
        self._batch: list[SweepJob] = []
        self._notes: list[str] = []
        self._mistakes: list[str] = []
        self._n_seen = 0
        self._resolver = Resolver(arguments)

    def execute(self, compose: Compose | None = None) -> None:
        """Compose, check and run all jobs.

        `compose` calls `collect` with each job; by default that is Hydra's command line.

        Raises:
            ConfigError: It names all mistakes, in any job; none has begun.
        """
        from rlzoo_plus.config.hydra_app import run_hydra

        if "run_dir" in set(typed_values(self.arguments)):
            raise ConfigError(
                "run_dir=... would be shared by all jobs of a sweep. Leave it out: each job gets a "
                "directory of its own, below sweep=NAME."
            )
        with contextlib.suppress(SweepStopped):
            (compose or run_hydra)(self.collect, self.arguments, self)
            # Hydra's own launchers, and Python, only collect.
            self.run()
        if not (self._n_seen or is_search(self.arguments)):
            raise ConfigError(
                "the sweep has no jobs: it is over no values, as in seed=range(0,0). Give it some."
            )

    # Called by Hydra's launcher and sweeper: see `config.composer.Batch`.

    def begin(self, n_jobs: int) -> None:
        """Learn how many jobs are planned until `run` is called."""
        self.view.count("planning", n_jobs)

    def collect(self, composed: Composed) -> None:
        """Check the configuration of a job and put it into the batch."""
        self._n_seen += 1
        self.view.advance()
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
        from rlzoo_plus.config.hydra_errors import explain

        self._n_seen += 1
        self.view.advance()
        self._mistakes.append(explain(error, self.arguments))

    def run(self) -> list[float | None]:
        """Run the batch; return the mean return of each job's best evaluation.

        Raises:
            ConfigError: It names all mistakes, in any job; none has begun.
        """
        self.view.end_count()
        placed, self._batch = place_longer(self._batch), []
        batch = placed.jobs
        self._notes += placed.notes()
        self._mistakes += placed.mistakes
        # Jobs that differ only in what is shown are the same run; of two sweeps they are refused.
        jobs = list({(job.sweep, job.key): job for job in batch}.values())
        launcher = self._check(jobs)
        if launcher is not None:
            if len(batch) > len(jobs):
                same = f"{len(batch) - len(jobs)} of the jobs are the same run as another one"
                self._notes.append(same)
            self._run(jobs, launcher)
        found = {job.key: job.run_dir.read_result().get("best") for job in jobs}
        return [(found[job.key] or {}).get("mean_return") for job in batch]

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Search for values instead; `arguments` are those of the command line."""
        if self._tune is None:
            raise ConfigError("hpo=... is a study, no sweep: rlzoo-plus train -m hpo=... runs it.")
        self.code = self._tune(compose)

    def _check(self, jobs: list[SweepJob]) -> Launcher | None:
        """Raise ConfigError for all mistakes together; return the launcher, None without jobs."""
        launcher, together = None, several_sweeps([*self.jobs, *jobs])
        if jobs and not self._mistakes and not together:
            # Its processes import torch while the environments are tried here.
            launcher = launcher_for([job.config for job in jobs])
        known = Refusals()
        self.view.count("checking", len(jobs))
        for job in jobs:
            self._mistakes += known.of(job.config)
            self.view.advance()
        self.view.end_count()
        if self._mistakes or together:
            raise ConfigError("\n".join([*together, *tell_causes(self._mistakes, self._n_seen)]))
        return launcher

    def _run(self, jobs: list[SweepJob], launcher: Launcher) -> None:
        sweep = jobs[0].sweep
        if isinstance(launcher, WorkersLauncher):
            if prepare(jobs, launcher, self.view):
                return
            launcher.submitter.begin()
        try:
            sweep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"sweep={sweep} cannot be made: {error}") from error
        notes, self._notes = list(dict.fromkeys(self._notes)), []
        self.view.begin(jobs, launcher, notes)
        jobs = [_restarted(job) for job in jobs]
        Ledger(sweep).add(jobs)
        self.jobs += jobs
        code = run_jobs(jobs, launcher, self.view, takes_signals=self._takes_signals)
        self.code = max(self.code, code)
        self.is_left = self.is_left or is_left(launcher, code)
        if code > 1:
            raise SweepStopped


def run_jobs(
    jobs: list[SweepJob], launcher: Launcher, view: SweepView, *, takes_signals: bool = True
) -> int:
    """Run jobs that are in their sweep's ledger; return 0, 1 if one failed, 75 or 130."""
    sweep = jobs[0].sweep
    if isinstance(launcher, WorkersLauncher):
        waits = launcher.settings.wait
        return submit_jobs(jobs, launcher, view, waits=waits, takes_signals=takes_signals)
    forget_store(sweep)
    controller = Controller(
        Ledger(sweep),
        jobs,
        launcher,
        view.ended,
        lambda: view.tick(controller),
        may_start=view.may_start,
        takes_signals=takes_signals,
    )
    with view:
        return controller.run()


def is_left(launcher: Launcher, code: int) -> bool:
    """Return whether the runs of a sweep go on after `run_jobs` returned a code."""
    return isinstance(launcher, WorkersLauncher) and (code > 1 or not launcher.settings.wait)


def launcher_for(configs: list[RunConfig]) -> Launcher:
    """Return the launcher of a sweep; the first job says which, and how many at once."""
    first = configs[0]
    return make_launcher(
        first.infra,
        max(map(busy_cores, configs)),
        PRELOAD,
        store=first.store,
        sweep=sweep_dir(first.sweep).absolute().name,
    )


def start_early(arguments: list[str], preload: Sequence[str] | None = None) -> None:
    """Let the server of job processes import torch while Hydra composes the jobs."""
    elsewhere = {"infra", "infra.name", "hydra/launcher"} & set(typed_values(arguments))
    asking = ("-c", "--cfg", "--info", "--hydra-help")
    only_asks = any(argument.partition("=")[0] in asking for argument in arguments)
    if (elsewhere and "infra=local" not in arguments) or only_asks or not hasattr(os, "setsid"):
        return
    start_server(PRELOAD if preload is None else preload)


def is_search(arguments: list[str]) -> bool:
    """Return whether a command line is that of a study: `hpo=ppo`."""
    pairs = (argument.lstrip("+~").partition("=") for argument in arguments)
    values = {key: value for key, _, value in pairs}
    return values.get("hpo", "none") not in ("none", "null")


def several_sweeps(jobs: list[SweepJob]) -> list[str]:
    """Return what is wrong if jobs do not belong to one sweep."""
    names = sorted({str(job.sweep) for job in jobs})
    if len(names) < 2:
        return []
    return [f"sweep: the jobs are of several sweeps ({', '.join(names)}). Give one sweep=NAME."]


def _command(arguments: list[str], composed: Composed, job: SweepJob) -> str:
    """Return the command line that runs a job alone: the same run, in the same place."""
    overrides = [override.removeprefix("++") for override in composed.overrides]
    # The only one of Hydra's own overrides that decides what a job is.
    overrides += [word for word in composed.hydra_overrides if "hydra.searchpath=" in word]
    ours = {"sweep", "num_threads", "restart"}
    kept = [override for override in overrides if not ours & set(typed_values([override]))]
    placed = [f"num_threads={job.config.num_threads}", f"run_dir={job.path}"]
    return command_line(["rlzoo-plus", "train", *config_options(arguments), *kept, *placed])


def _restarted(job: SweepJob) -> SweepJob:
    """Move an earlier run aside if restart=true: here, so that it happens once."""
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


@dataclass
class Placed:
    """Jobs in the directories where their sweep has them."""

    jobs: list[SweepJob] = field(default_factory=list)  # in the order in which they were given
    extended: set[int] = field(default_factory=set)  # lengths of the runs that are extended
    left: set[int] = field(default_factory=set)  # lengths of the runs that workers do not extend
    mistakes: list[str] = field(default_factory=list)  # why some jobs cannot run

    def notes(self) -> list[str]:
        """Return what the user should know."""
        texts = {
            "runs of {} steps are extended from their last checkpoints. They are not exact: they "
            "differ from runs that had this length from the start": self.extended,
            "workers extend no runs: those of {} steps stay, and longer ones are new": self.left,
        }
        shown = {text: " and ".join(f"{n:,}" for n in sorted(n_s)) for text, n_s in texts.items()}
        return [text.format(steps) for text, steps in shown.items() if steps]


def place_longer(jobs: list[SweepJob]) -> Placed:
    """Place jobs that their sweep has with fewer steps in the directories of those runs.

    There they go on from the last checkpoint, as with `resume RUN n_timesteps=...`. Runs of several
    lengths in one command are different runs, and so are those of the sweep without a name, which
    unrelated commands share.
    """
    sweeps = {job.sweep for job in jobs}
    past = {} if len(sweeps) != 1 or sweep_dir(None) in sweeps else _past_jobs(jobs)
    if not past:
        return Placed(list(jobs))
    # The runs that differ in nothing but their length, by their length.
    by_kind: dict[Path, dict[int, SweepJob]] = defaultdict(dict)
    for job in past.values():
        by_kind[_kind(job)][job.config.n_timesteps] = job
    asked: dict[Path, set[int]] = defaultdict(set)
    for job in jobs:
        asked[_kind(job)].add(job.config.n_timesteps)
    placed = Placed()
    for job in jobs:
        lengths, is_one = by_kind[_kind(job)], len(asked[_kind(job)]) == 1
        there = lengths.get(job.config.n_timesteps) or past.get(job.key)
        if there is None and lengths and is_one:
            there = lengths[max(lengths)]
        _place(job, there, placed)
    return placed


def _place(job: SweepJob, there: SweepJob | None, placed: Placed) -> None:
    """Add a job, in the directory of another one of its kind if there is one."""
    steps = job.config.n_timesteps
    before = steps if there is None else there.config.n_timesteps
    if there is None or (job.config.infra.name in ON_WORKERS and before < steps):
        placed.jobs.append(job)
        placed.left |= {before} - {steps}
        return
    if not job.config.restart and there.run_dir.has_begun():
        placed.extended |= {before} if before < steps else set()
        if before > steps:
            placed.mistakes.append(
                f"n_timesteps={steps}: sweep={job.sweep.name} has such runs with {before} steps, "
                f"and runs only get longer. Set n_timesteps to at least {before}, choose another "
                "sweep=NAME, or add restart=true to begin anew and move those aside."
            )
    config = job.config.model_copy(update={"run_dir": str(there.path)})
    command = job.command.replace(str(job.path), str(there.path))
    placed.jobs.append(replace(job, path=there.path, config=config, command=command))


def _past_jobs(jobs: list[SweepJob]) -> dict[str, SweepJob]:
    """Return the jobs in the sweep's ledger by their key; none if these are there as they are."""
    ledger = Ledger(jobs[0].sweep)
    past = ledger.read().jobs if ledger.path.is_file() else {}
    same = [past.get(job.key, job).config.n_timesteps == job.config.n_timesteps for job in jobs]
    return {} if all(same) and all(job.key in past for job in jobs) else past


def _kind(job: SweepJob) -> Path:
    """Return the directory that a job of any length would share."""
    return make_job(job.config.model_copy(update={"n_timesteps": 1})).path

"""Longer runs of a sweep: a run that the sweep has with fewer steps is extended where it is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlzoo_plus.config.catalog import ON_WORKERS
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.sweep_job import SweepJob, make_job, sweep_dir


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

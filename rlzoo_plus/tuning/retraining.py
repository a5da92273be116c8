"""The best trials trained again on fresh seeds, and the winner among them examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import read_json
from rlzoo_plus.infra.job import JobSpec
from rlzoo_plus.infra.launcher import Launcher
from rlzoo_plus.infra.scheduler import run_together
from rlzoo_plus.sweeps.job import SweepJob, make_job
from rlzoo_plus.tuning.metrics import run_figures
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.study_report import HeldOut, Retrained
from rlzoo_plus.tuning.trials import TrialView

EXAMINATION = "rlzoo_plus.tuning.trial_job:examine"
EXAMINED = "held_out.json"


def retraining_jobs(
    plan: StudyPlan, best: Sequence[TrialView]
) -> list[tuple[TrialView, list[SweepJob]]]:
    """Return the runs of the best trials on fresh seeds, a job each, in the order of the trials.

    Raises:
        ConfigError: A trial's values are no configuration any more.
        UntrustedError: They may import code, and are not of this study's space.
    """
    for view in best:
        plan.draw_again(view)
    return [
        (view, [_job(plan, view, index) for index in range(plan.hpo.retrain.seeds)])
        for view in best
    ]


def retrained(view: TrialView, jobs: Sequence[SweepJob]) -> Retrained:
    """Return what a trial's values gave on fresh seeds; runs that failed have no figures."""
    return Retrained(
        number=view.number,
        seeds=tuple(job.config.seed for job in jobs),
        figures=tuple(run_figures(job.run_dir) if job.is_finished() else {} for job in jobs),
    )


def best_job(jobs: Sequence[SweepJob]) -> SweepJob | None:
    """Return the finished run whose best policy got most while training; None if none did."""
    scores = [(run_figures(job.run_dir).get("best_return"), job) for job in jobs]
    known = [(score, job) for score, job in scores if score is not None and job.is_finished()]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def examine(job: SweepJob, episodes: int, launcher: Launcher) -> HeldOut | None:
    """Let a run's best policy play held-out episodes, in a process of its own.

    Returns:
        What it got, None if it could not play; then the run's log says why.

    Raises:
        JobsStopped: By Ctrl-C or SIGTERM; the same call begins it again.
    """
    job.check_place()
    file = job.path / EXAMINED
    known = _read(file)
    if known is not None and known.episodes == episodes:
        return known
    config = job.config.model_dump()
    data = {"run": str(job.path), "config": config, "episodes": episodes}
    spec = JobSpec("held-out episodes", EXAMINATION, data, job.path / "log.txt")
    run_together(launcher, [spec])
    return _read(file)


def _job(plan: StudyPlan, view: TrialView, index: int) -> SweepJob:
    job = make_job(plan.full_config(view.overrides, index))
    words = [f"study={plan.name}", f"trial={view.number}", f"seed={job.config.seed}"]
    return replace(
        job, command=command_line(["rlzoo-plus", "train", *words, f"run_dir={job.path}"])
    )


def _read(file: Path) -> HeldOut | None:
    record = read_json(file)
    mean, std = finite(record.get("mean_return")), finite(record.get("std_return"))
    returns = record.get("returns")
    if mean is None or std is None or not isinstance(returns, list):
        return None
    return HeldOut(mean, std, len(returns))

"""The end of a study: its best trials trained again on fresh seeds, and the winner published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import read_json
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.launchers.launcher import JobSpec, Launcher
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.launchers.scheduler import JobsStopped, run_together
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.multirun import run_jobs
from rlzoo_plus.sweeps.sweep_job import SweepJob, make_job
from rlzoo_plus.tuning.experiment_file import write_winner
from rlzoo_plus.tuning.objectives import run_metrics
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.study_report import (
    HeldOut,
    Retrained,
    StudyReport,
    choose_winner,
    write_report,
)
from rlzoo_plus.tuning.study_view import TuningView
from rlzoo_plus.tuning.trial_job import EXAMINATION, EXAMINED, PRELOAD
from rlzoo_plus.tuning.trials import TrialView


def conclude(
    plan: StudyPlan, study: Study, launcher: Launcher, arguments: list[str], view: TuningView
) -> int:
    """Train the best again, write the report and the winner's file, and print the results.

    Returns:
        0, 1 if something failed, 75 or 130 if it was stopped.
    """
    best = study.best(max(plan.hpo.retrain.best, 1))
    if not best:
        done = sum(each.state == "done" for each in study.trials())
        kept = ", ".join(plan.hpo.constraints)
        reason = f"none of {done} finished trials keeps {kept}" if done else "no trial was finished"
        files = write_report(plan.folder, _report(plan, study, best=[]))
        view.say(f"{reason}, so there is no winner", "red")
        view.say(f"report: {files[-1]}")
        return 1
    pairs = retraining_jobs(plan, best) if plan.hpo.retrain.best else []
    code = _retrain(plan, [job for _, jobs in pairs for job in jobs], launcher, view)
    if code > 1:
        return code
    again = [_retrained(trial, jobs) for trial, jobs in pairs]
    winner = choose_winner(again, plan.hpo)
    job: SweepJob | None = None
    if winner is not None:
        job = _best_job(pairs[again.index(winner)][1])
    if job is not None:
        episodes = plan.hpo.retrain.episodes
        view.say(f"the winner plays {counted(episodes, 'held-out episode')}")
        try:
            held_out = examine(job, episodes, launcher)
        except JobsStopped as stopped:
            return stopped.code
        if held_out is None:
            view.say(f"the evaluation failed; see {job.path / 'log.txt'}", "red")
        again = [replace(each, held_out=held_out) if each is winner else each for each in again]
    report = _report(plan, study, best=best, retrained=again)
    return max(code, _publish(plan, report, job, arguments, view))


def _publish(
    plan: StudyPlan,
    report: StudyReport,
    job: SweepJob | None,
    arguments: list[str],
    view: TuningView,
) -> int:
    """Write the winner's file and the report; return 1 if the file cannot be written.

    `job` is the winner's best run on fresh seeds, None if it was not trained again.
    """
    code = 0
    winner = next(each for each in report.trials if each.number == report.winner)
    plan.draw_again(winner)
    try:
        config = job.config if job else plan.trial_config(winner.overrides, winner.folder)
        file, option = write_winner(plan, winner.number, config, arguments)
    except ConfigError as error:
        # Hours of training still get their report.
        view.say(f"the winner's file is not written: {error}", "red")
        code, following = 1, f"study={plan.folder} trial={winner.number}"
    else:
        view.say(f"winner: trial {winner.number}, written to {file}")
        report = replace(report, experiment=file.stem, option=option)
        following = f"{option}experiment={file.stem}"
    files = write_report(plan.folder, report)
    view.show(report)
    view.say(f"report: {files[-1]}")
    view.say(f"next: rlzoo-plus train {following}")
    return code


def _report(plan: StudyPlan, study: Study, **found: Any) -> StudyReport:
    return StudyReport(
        name=plan.name,
        hpo=plan.hpo,
        base=plan.fixed,
        trials=study.trials(),
        trial_timesteps=plan.trial_timesteps,
        full_timesteps=plan.base.n_timesteps,
        **found,
    )


def _retrain(plan: StudyPlan, jobs: list[SweepJob], launcher: Launcher, view: TuningView) -> int:
    if not jobs:
        return 0
    unique = list({job.key: job for job in jobs}.values())
    count = len({job.command.split(" seed=")[0] for job in jobs})
    view.say(
        f"the best {count} again, {counted(plan.hpo.retrain.seeds, 'fresh seed')} each, "
        f"{plan.base.n_timesteps:,} steps"
    )
    unique[0].sweep.mkdir(parents=True, exist_ok=True)
    Ledger(unique[0].sweep).add(unique)
    return run_jobs(unique, launcher, view.of_jobs(len(unique), launcher))


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
    indices = range(plan.hpo.retrain.seeds)
    return [(view, [_job(plan, view, index) for index in indices]) for view in best]


def _job(plan: StudyPlan, view: TrialView, index: int) -> SweepJob:
    job = make_job(plan.full_config(view.overrides, index))
    named = [f"study={plan.name}", f"trial={view.number}", f"seed={job.config.seed}"]
    command = command_line(["rlzoo-plus", "train", *named, f"run_dir={job.path}"])
    return replace(job, command=command)


def _retrained(view: TrialView, jobs: Sequence[SweepJob]) -> Retrained:
    """Return what a trial's values gave on fresh seeds; runs that failed have no metrics."""
    return Retrained(
        number=view.number,
        seeds=tuple(job.config.seed for job in jobs),
        metrics=tuple(run_metrics(job.run_dir) if job.is_finished() else {} for job in jobs),
    )


def _best_job(jobs: Sequence[SweepJob]) -> SweepJob | None:
    """Return the finished run with the highest return while training; None if there is none."""
    scores = [(run_metrics(job.run_dir).get("best_return"), job) for job in jobs]
    known = [(score, job) for score, job in scores if score is not None and job.is_finished()]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def examine(job: SweepJob, episodes: int, launcher: Launcher) -> HeldOut | None:
    """Evaluate a run's best policy on held-out episodes, in a process of its own.

    Returns:
        The returns, None if the evaluation failed; then the run's log has the reason.

    Raises:
        JobsStopped: By Ctrl-C or SIGTERM; the same call begins it again.
    """
    job.check_place()
    file = job.path / EXAMINED
    known = _read(file)
    if known is not None and known.episodes == episodes:
        return known
    if isinstance(launcher, WorkersLauncher):
        # Workers train; its policy plays here.
        launcher.bring(job.key, job.path, job.config)
        launcher = LocalLauncher(1, PRELOAD)
    data = {"run": str(job.path), "config": job.config.model_dump(), "episodes": episodes}
    spec = JobSpec("held-out episodes", EXAMINATION, data, job.path / "log.txt")
    run_together(launcher, [spec])
    return _read(file)


def _read(file: Path) -> HeldOut | None:
    record = read_json(file)
    mean, std = finite(record.get("mean_return")), finite(record.get("std_return"))
    returns = record.get("returns")
    if mean is None or std is None or not isinstance(returns, list):
        return None
    return HeldOut(mean, std, len(returns))

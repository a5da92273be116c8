"""`rlzoo-plus train -m hpo=...`: trials, then the best of them again, then the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlzoo_plus.commands.tuning_plan import Compose, make_plan
from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import StudyPlan
    from rlzoo_plus.tuning.study_report import Retrained, StudyReport

PRELOAD = ("rlzoo_plus.preload", "rlzoo_plus.tuning.trial_job", "rlzoo_plus.tuning.study")


def run_study(arguments: list[str], compose: Compose) -> int:
    """Run a study; return 0, 1 if no trial gave anything, 75 or 130 if it was stopped.

    Args:
        arguments: The command line, as typed.
        compose: Composes a list of prepared overrides.

    Raises:
        ConfigError: Something in the command is wrong, or nothing can be run.
    """
    plan, notes = make_plan(arguments, compose)
    study, launcher = _open(plan, arguments)
    # These import Optuna, which is known to be there by now.
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.commands.tuning_view import StudyView
    from rlzoo_plus.tuning.samplers import pruning_note
    from rlzoo_plus.tuning.tuner import Tuner

    console = make_console()
    told = [pruning_note(plan.hpo), *notes, *_warm_start(plan, study)]
    for note in dict.fromkeys(filter(None, told)):
        console.print(f"[yellow]note:[/] {note}")
    console.print(_headline(plan, study, launcher), markup=False)
    view = StudyView(console, plan, study, is_live=not launcher.shows_output)
    tuner = Tuner(plan, study, launcher, view.ended, view.tick)
    with view:
        code = tuner.run()
    if code <= 1:
        code = max(code, _conclude(plan, study, launcher, arguments, console))
    if code > 1:
        console.print("stopped; the same command goes on", markup=False)
    return code


def _open(plan: StudyPlan, arguments: list[str]) -> tuple[Study, Launcher]:
    """Check what can be checked before anything is written, and open the study."""
    from rlzoo_plus.config.compose import config_options
    from rlzoo_plus.infra.launcher import make_launcher
    from rlzoo_plus.sweeps.job import busy_cores
    from rlzoo_plus.tuning.experiment_file import check_target
    from rlzoo_plus.tuning.stored_study import write_study_file
    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import about_study, check_draws

    mistakes = study_mistakes(plan)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    check_target(plan, arguments)
    check_draws(plan)
    # Its processes import torch while the study is opened.
    launcher = make_launcher(plan.base.infra, busy_cores(plan.base), PRELOAD)
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"hpo.study={plan.folder} cannot be made: {error}") from error
    study = Study.open(plan.name, plan.folder, plan.hpo, about_study(plan), grid=_grid(plan))
    write_study_file(plan, config_options(arguments))
    return study, launcher


def study_mistakes(plan: StudyPlan) -> list[str]:
    """Return what is wrong with a study, all of it; nothing is written."""
    from rlzoo_plus.diagnosis.refusals import refusals
    from rlzoo_plus.tuning.metrics import RUNGS, parse_constraints
    from rlzoo_plus.tuning.storage import check_storage, require_optuna

    require_optuna()
    from rlzoo_plus.tuning.samplers import make_pruner, make_sampler

    hpo, found = plan.hpo, []
    checks: list[Callable[[], object]] = [
        lambda: make_sampler(hpo, 0, _grid(plan)),
        lambda: make_pruner(hpo, RUNGS * hpo.seeds),
        lambda: parse_constraints(hpo.constraints),
        lambda: check_storage(hpo.storage),
    ]
    for check in checks:
        try:
            check()
        except ConfigError as error:
            found.append(str(error))
    return [*found, *refusals([plan.base])]


def _grid(plan: StudyPlan) -> dict[str, list[object]] | None:
    return plan.space.grid() if plan.hpo.sampler == "grid" else None


def _warm_start(plan: StudyPlan, study: Study) -> list[str]:
    """Let the first trial take the values that `train` takes."""
    if not plan.hpo.warm_start or plan.hpo.sampler == "grid":
        return []
    params, notes = plan.space.encode(plan.fixed_values)
    if not params or not study.enqueue(params):
        return []
    # The trial itself is exactly what `train` takes.
    return [f"first trial, to the sampler: {note}" for note in notes]


def _headline(plan: StudyPlan, study: Study, launcher: Launcher) -> str:
    over = sum(view.state in ("done", "pruned", "failed") for view in study.trials())
    before = f", {over} over already" if over else ""
    seeds = "" if plan.hpo.seeds == 1 else f" of {plan.hpo.seeds} seeds"
    return (
        f"study {plan.folder}: {_many(plan.hpo.n_trials, 'trial')}{seeds}{before}, "
        f"{launcher.slots} at once, {_many(len(plan.space.dimensions), 'value')} to find, "
        f"{plan.trial_timesteps:,} steps each"
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _conclude(
    plan: StudyPlan, study: Study, launcher: Launcher, arguments: list[str], console: Console
) -> int:
    """Train the best again, write the report and the winner's file, and say what was found."""
    from rlzoo_plus.infra.scheduler import JobsStopped
    from rlzoo_plus.tuning.retraining import best_job, retrained, retraining_jobs
    from rlzoo_plus.tuning.study_report import choose_winner

    best = study.best(max(plan.hpo.retrain.best, 1))
    if not best:
        return _conclude_without_winner(plan, study, console)
    pairs = retraining_jobs(plan, best) if plan.hpo.retrain.best else []
    code = _retrain(plan, [job for _, jobs in pairs for job in jobs], launcher, console)
    if code > 1:
        return code
    again = [retrained(view, jobs) for view, jobs in pairs]
    winner = choose_winner(again, plan.hpo)
    job: SweepJob | None = None
    if winner is not None:
        jobs = next(jobs for view, jobs in pairs if view.number == winner.number)
        job = best_job(jobs)
    if job is not None:
        try:
            again = _examined(plan, again, job, launcher, console)
        except JobsStopped as stopped:
            return stopped.code
    report = _report(plan, study, best=best, retrained=again)
    return max(code, _publish(plan, report, job, arguments, console))


def _publish(
    plan: StudyPlan,
    report: StudyReport,
    job: SweepJob | None,
    arguments: list[str],
    console: Console,
) -> int:
    """Write the winner's file and the report; return 1 if the file cannot be written.

    Args:
        plan: The study.
        report: All but the winner's file.
        job: The winner's best run on fresh seeds, None if it was not trained again.
        arguments: The command line, as typed.
        console: Where to say what was found.
    """
    from dataclasses import replace

    from rlzoo_plus.commands.study_tables import print_report
    from rlzoo_plus.tuning.experiment_file import write_winner
    from rlzoo_plus.tuning.study_report import write_report

    code, winner = 0, next(view for view in report.trials if view.number == report.winner)
    plan.draw_again(winner)
    try:
        config = job.config if job else plan.trial_config(winner.overrides, 0, winner.folder)
        file, option = write_winner(plan, winner.number, config, arguments)
    except ConfigError as error:
        # Hours of training are not to be without a report for a file's sake.
        console.print(f"the winner's file is not written: {error}", markup=False, style="red")
        code, following = 1, f"study={plan.folder} trial={winner.number}"
    else:
        console.print(f"winner: trial {winner.number}, written to {file}", markup=False)
        report = replace(report, experiment=file.stem, option=option)
        following = f"{option}experiment={file.stem}"
    files = write_report(plan.folder, report)
    print_report(report, console)
    console.print(f"report: {files[-1]}", markup=False)
    console.print(f"next: rlzoo-plus train {following}", markup=False)
    return code


def _conclude_without_winner(plan: StudyPlan, study: Study, console: Console) -> int:
    """Say why there is no winner, and write what there is to report."""
    from rlzoo_plus.tuning.study_report import write_report

    done = sum(view.state == "done" for view in study.trials())
    kept = ", ".join(plan.hpo.constraints)
    reason = f"none of {done} finished trials keeps {kept}" if done else "no trial was finished"
    files = write_report(plan.folder, _report(plan, study, best=[]))
    console.print(f"{reason}, so there is no winner", markup=False, style="red")
    console.print(f"report: {files[-1]}", markup=False)
    return 1


def _report(plan: StudyPlan, study: Study, **found: Any) -> StudyReport:
    from rlzoo_plus.tuning.study_report import StudyReport

    return StudyReport(
        name=plan.name,
        hpo=plan.hpo,
        base=plan.fixed,
        trials=study.trials(),
        trial_timesteps=plan.trial_timesteps,
        full_timesteps=plan.base.n_timesteps,
        **found,
    )


def _retrain(plan: StudyPlan, jobs: list[SweepJob], launcher: Launcher, console: Console) -> int:
    if not jobs:
        return 0
    from rlzoo_plus.commands.sweep_view import SweepView
    from rlzoo_plus.sweeps.ledger import Ledger
    from rlzoo_plus.sweeps.multirun import run_jobs

    unique = list({job.key: job for job in jobs}.values())
    count = len({job.command.split(" seed=")[0] for job in jobs})
    console.print(
        f"the best {count} again, {_many(plan.hpo.retrain.seeds, 'fresh seed')} each, "
        f"{plan.base.n_timesteps:,} steps",
        markup=False,
    )
    unique[0].sweep.mkdir(parents=True, exist_ok=True)
    Ledger(unique[0].sweep).add(unique)
    view = SweepView(lambda: console)
    view.expect(len(unique), launcher)
    return run_jobs(unique, launcher, view)


def _examined(
    plan: StudyPlan, again: list[Retrained], job: SweepJob, launcher: Launcher, console: Console
) -> list[Retrained]:
    """Add what the winner's best policy gets on held-out episodes.

    Args:
        plan: The study.
        again: What was trained again, the winner among them.
        job: The winner's best run.
        launcher: Where it plays.
        console: Where to say so.

    Raises:
        JobsStopped: By a signal.
    """
    from dataclasses import replace

    from rlzoo_plus.tuning.retraining import examine
    from rlzoo_plus.tuning.study_report import choose_winner

    episodes = plan.hpo.retrain.episodes
    console.print(f"the winner plays {_many(episodes, 'held-out episode')}", markup=False)
    held_out = examine(job, episodes, launcher)
    if held_out is None:
        text = f"it could not play them; {job.path / 'log.txt'} says why"
        console.print(text, markup=False, style="red")
    winner = choose_winner(again, plan.hpo)
    return [replace(each, held_out=held_out) if each is winner else each for each in again]

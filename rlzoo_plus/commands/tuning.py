"""`rlzoo-plus train -m hpo=...`: trials, then the best of them again, then the report."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.tuning_plan import Compose, make_plan
from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.tuning.plan import StudyPlan
    from rlzoo_plus.tuning.report import Retrained
    from rlzoo_plus.tuning.study import Study

PRELOAD = ("rlzoo_plus.preload", "rlzoo_plus.commands.trial_job", "rlzoo_plus.tuning.study")


def run_study(arguments: list[str], compose: Compose) -> int:
    """Run a study; return 0, 1 if no trial gave anything, 75 or 130 if it was stopped.

    Args:
        arguments: The command line, as typed.
        compose: Composes a list of prepared overrides.

    Raises:
        ConfigError: Something in the command is wrong, or nothing can be run.
    """
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.commands.tuning_view import StudyView
    from rlzoo_plus.tuning.pruners import pruning_note
    from rlzoo_plus.tuning.tuner import Tuner

    plan, notes = make_plan(arguments, compose)
    study, launcher = _open(plan, arguments)
    console = make_console()
    told = [pruning_note(plan.hpo), *notes, *_warm_start(plan, study)]
    for note in dict.fromkeys(filter(None, told)):
        console.print(f"[yellow]note:[/] {note}")
    console.print(_headline(plan, study, launcher), markup=False)
    view = StudyView(console, plan, study, is_live=not launcher.shows_output)
    tuner = Tuner(plan, study, launcher, view.ended, view.tick)
    with view:
        code = tuner.run()
    if code > 1:
        console.print("stopped; the same command goes on", markup=False)
        return code
    code = max(code, _conclude(plan, study, launcher, arguments, console))
    return code


def _open(plan: StudyPlan, arguments: list[str]) -> tuple[Study, Launcher]:
    """Check what can be checked before anything is written, and open the study."""
    from rlzoo_plus.commands.sweeping import busy_cores
    from rlzoo_plus.config.compose import config_options
    from rlzoo_plus.infra.launcher import make_launcher
    from rlzoo_plus.tuning.plan import about_study
    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_file import write_study_file

    mistakes = study_mistakes(plan)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
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
    from rlzoo_plus.tuning.constraints import parse_constraints
    from rlzoo_plus.tuning.figures import RUNGS
    from rlzoo_plus.tuning.pruners import make_pruner
    from rlzoo_plus.tuning.samplers import make_sampler
    from rlzoo_plus.tuning.storage import check_storage, require_optuna

    require_optuna()
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
    if params:
        study.enqueue(params)
    return notes


def _headline(plan: StudyPlan, study: Study, launcher: Launcher) -> str:
    over = sum(view.state in ("done", "pruned", "failed") for view in study.trials())
    before = f", {over} of them over already" if over else ""
    seeds = "" if plan.hpo.seeds == 1 else f" of {plan.hpo.seeds} seeds"
    return (
        f"study {plan.folder}: {plan.hpo.n_trials} trials{seeds}{before}, "
        f"{launcher.slots} at once, {len(plan.space.dimensions)} values to find, "
        f"{plan.trial_timesteps:,} steps each"
    )


def _conclude(
    plan: StudyPlan, study: Study, launcher: Launcher, arguments: list[str], console: Console
) -> int:
    """Train the best again, write the report and the winner's file, and say what was found."""
    from rlzoo_plus.commands.study_tables import print_report
    from rlzoo_plus.tuning.report import StudyReport, choose_winner, write_report
    from rlzoo_plus.tuning.retraining import best_job, retrained, retraining_jobs

    best = study.best(max(plan.hpo.retrain.best, 1))
    if not best:
        console.print("no trial was finished, so there is no winner", markup=False, style="red")
        return 1
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
        again = [_examined(plan, each, job, winner, launcher) for each in again]
    number = best[0].number if winner is None else winner.number
    name, option = _write_experiment(plan, study, number, job, arguments, console)
    report = StudyReport(
        name=plan.name,
        hpo=plan.hpo,
        base=plan.fixed,
        trials=study.trials(),
        best=best,
        trial_timesteps=plan.trial_timesteps,
        full_timesteps=plan.base.n_timesteps,
        retrained=again,
        experiment=name,
    )
    files = write_report(plan.folder, report)
    print_report(report, console)
    console.print(f"report: {files[-1]}", markup=False)
    console.print(f"next: python train.py {option}experiment={name}", markup=False)
    return code


def _retrain(plan: StudyPlan, jobs: list[SweepJob], launcher: Launcher, console: Console) -> int:
    if not jobs:
        return 0
    from rlzoo_plus.commands.sweeping import run_jobs
    from rlzoo_plus.sweeps.ledger import Ledger

    unique = list({job.key: job for job in jobs}.values())
    count = len({job.command.split(" seed=")[0] for job in jobs})
    console.print(
        f"the best {count} again, {plan.hpo.retrain.seeds} fresh seeds each, "
        f"{plan.base.n_timesteps:,} steps",
        markup=False,
    )
    book = Ledger(unique[0].sweep)
    unique[0].sweep.mkdir(parents=True, exist_ok=True)
    book.add(unique)
    code, _ = run_jobs(book, unique, launcher, console)
    return code


def _examined(
    plan: StudyPlan,
    each: Retrained,
    job: SweepJob | None,
    winner: Retrained,
    launcher: Launcher,
) -> Retrained:
    """Add what the winner's best policy gets on held-out episodes."""
    from dataclasses import replace

    from rlzoo_plus.tuning.retraining import examine

    if job is None or each.number != winner.number:
        return each
    return replace(each, held_out=examine(job, plan.hpo.retrain.episodes, launcher))


def _write_experiment(
    plan: StudyPlan,
    study: Study,
    number: int,
    job: SweepJob | None,
    arguments: list[str],
    console: Console,
) -> tuple[str, str]:
    """Write the winner's file; return its name, and the option with which it is found."""
    from rlzoo_plus.tuning.experiment_file import experiment_name, write_experiment

    view = next(view for view in study.trials() if view.number == number)
    config = plan.trial_config(view.overrides, 0, view.folder) if job is None else job.config
    name = plan.hpo.experiment or f"{experiment_name(plan.name)}_best"
    root, option = _conf_root(arguments)
    target = root / "experiment" / f"{name}.yaml"
    header = [
        f"The winner of the study {plan.name}: trial {number}.",
        f"Use: python train.py {option}experiment={name}",
        f"Written by a study; the next one of the same name replaces it. See {plan.folder}.",
    ]
    write_experiment(target, config, header, overwrite=_is_ours(target, header[0]))
    console.print(f"winner: trial {number}, written to {target}", markup=False)
    return name, option


def _is_ours(target: Path, first_line: str) -> bool:
    """Tell whether a file was written by this study, and not by the user."""
    try:
        with target.open(encoding="utf-8") as file:
            head = file.read(2048)
    except (OSError, UnicodeDecodeError):
        return False
    return first_line.partition(":")[0] in head


def _conf_root(arguments: list[str]) -> tuple[Path, str]:
    """Return the folder of configuration files that is the user's, and the option that names it."""
    from rlzoo_plus.config.compose import config_dirs

    shipped, *own = config_dirs(arguments)
    if own:
        return own[0], f"--config-dir {shlex.quote(str(own[0]))} "
    if (shipped.parent / "pyproject.toml").is_file():
        return shipped, ""
    # An installed package is not the user's to write to.
    return Path("conf"), "--config-dir conf "

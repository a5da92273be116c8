"""`rlzoo-plus train -m`: run the jobs of a sweep, or with `hpo` a study."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rich.console import Console

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.commands.train_population import train_by_schedule, train_population
from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.config.catalog import ON_WORKERS
from rlzoo_plus.config.composer import Composed
from rlzoo_plus.store.mirror import is_sent
from rlzoo_plus.sweeps import multirun
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.sweep_job import SweepJob
from rlzoo_plus.sweeps.sweep_view import SweepView, print_summary
from rlzoo_plus.tuning.population_settings import PBT
from rlzoo_plus.tuning.study_plan import make_plan
from rlzoo_plus.tuning.study_view import TuningView
from rlzoo_plus.tuning.trial_job import PRELOAD


def main(arguments: list[str]) -> int:
    """Run the sweep or study; return 0, 1 if a job failed, 75 or 130 if it was stopped."""
    if any(argument.startswith("schedule=") for argument in arguments):
        return train_by_schedule(arguments)

    def tune(compose: Callable[[Sequence[str]], Composed]) -> int:
        return _run_study(arguments, compose)

    if multirun.is_search(arguments):
        multirun.start_early(arguments, PRELOAD)
    else:
        multirun.start_early(arguments)
    view = SweepView(make_console)
    sweep = multirun.Multirun(arguments, view, tune)
    sweep.execute()
    if sweep.jobs and not sweep.is_left:
        print_summary(Ledger(sweep.jobs[0].sweep), sweep.jobs, view.console)
        _print_unsent(sweep.jobs, view.console)
    return sweep.code


def _print_unsent(jobs: Sequence[SweepJob], console: Console) -> None:
    """Print how many runs that trained here are not all in their store."""
    here = [job for job in jobs if job.config.store and job.config.infra.name not in ON_WORKERS]
    unsent = [job for job in here if job.run_dir.has_begun() and not is_sent(job.path)]
    if unsent:
        store = unsent[0].config.store
        console.print(
            f"warning: {len(unsent)} of these runs are not all in {store}. Send each later: "
            f"rlzoo-plus push {shlex.quote(str(unsent[0].path))} {store}",
            markup=False,
        )


def _run_study(arguments: list[str], compose: Callable[[Sequence[str]], Composed]) -> int:
    """Run the trials, retrain the best, write the report; return 1 if no trial has a result."""
    plan, notes = make_plan(arguments, compose)
    if plan.hpo.sampler == PBT:
        return train_population(plan, notes)
    # These import Optuna.
    from rlzoo_plus.tuning import retraining, samplers, tuner
    from rlzoo_plus.tuning import study as studies

    study, launcher, more = studies.begin_study(plan, arguments)
    console = make_console()
    for note in dict.fromkeys(filter(None, [samplers.pruning_note(plan.hpo), *notes, *more])):
        console.print(f"[yellow]note:[/] {note}")
    view = TuningView(console, plan, study, is_live=not launcher.shows_output)
    over = sum(trial.state in ("done", "pruned", "failed") for trial in study.trials())
    before = f", {over} already finished" if over else ""
    seeds = "" if plan.hpo.seeds == 1 else f" of {plan.hpo.seeds} seeds"
    view.say(
        f"study {plan.folder}: {counted(plan.hpo.n_trials, 'trial')}{seeds}{before}, "
        f"{launcher.slots} at once, {counted(len(plan.space.dimensions), 'value')} to find, "
        f"{plan.trial_timesteps:,} steps each"
    )
    search = tuner.Tuner(plan, study, launcher, view.ended, view.tick)
    with view:
        code = search.run()
    if code <= 1:
        code = max(code, retraining.conclude(plan, study, launcher, arguments, view))
    if code > 1:
        view.say("stopped; the same command goes on")
    return code

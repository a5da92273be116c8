"""`rlzoo-plus train -m hpo=...`: trials, then the best of them again, then the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlzoo_plus.tuning.storage import require_optuna
from rlzoo_plus.tuning.study_plan import Compose, make_plan

if TYPE_CHECKING:
    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import StudyPlan


def run_study(arguments: list[str], compose: Compose) -> int:
    """Run a study; return 0, 1 if no trial gave anything, 75 or 130 if it was stopped.

    Args:
        arguments: The command line, as typed.
        compose: Composes a list of prepared overrides.

    Raises:
        ConfigError: Something in the command is wrong, or nothing can be run.
    """
    plan, notes = make_plan(arguments, compose)
    require_optuna()
    # These import Optuna.
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.tuning.retraining import conclude
    from rlzoo_plus.tuning.samplers import pruning_note
    from rlzoo_plus.tuning.study import begin_study
    from rlzoo_plus.tuning.study_view import TuningView
    from rlzoo_plus.tuning.tuner import Tuner

    study, launcher, more = begin_study(plan, arguments)
    console = make_console()
    for note in dict.fromkeys(filter(None, [pruning_note(plan.hpo), *notes, *more])):
        console.print(f"[yellow]note:[/] {note}")
    view = TuningView(console, plan, study, is_live=not launcher.shows_output)
    view.say(_headline(plan, study, launcher))
    tuner = Tuner(plan, study, launcher, view.ended, view.tick)
    with view:
        code = tuner.run()
    if code <= 1:
        code = max(code, conclude(plan, study, launcher, arguments, view))
    if code > 1:
        view.say("stopped; the same command goes on")
    return code


def _headline(plan: StudyPlan, study: Study, launcher: Launcher) -> str:
    from rlzoo_plus.tuning.retraining import many

    over = sum(view.state in ("done", "pruned", "failed") for view in study.trials())
    before = f", {over} over already" if over else ""
    seeds = "" if plan.hpo.seeds == 1 else f" of {plan.hpo.seeds} seeds"
    return (
        f"study {plan.folder}: {many(plan.hpo.n_trials, 'trial')}{seeds}{before}, "
        f"{launcher.slots} at once, {many(len(plan.space.dimensions), 'value')} to find, "
        f"{plan.trial_timesteps:,} steps each"
    )

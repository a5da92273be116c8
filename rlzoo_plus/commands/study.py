"""`rlzoo-plus study`: look at a study, draw it, ask what matters, and get its best values."""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, one_line, printable
from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.study_report import counts, number_text
from rlzoo_plus.tuning.study_view import (
    importance_table,
    print_ended,
    print_running,
    print_settings,
    trials_table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.tuning.stored_study import KnownStudy
    from rlzoo_plus.tuning.trials import TrialView

_SHOWN = 10
# Optuna and matplotlib stumble over forged trials.
_ODD = (ValueError, LookupError, TypeError, ArithmeticError, AssertionError)


def main(arguments: list[str]) -> int:
    """Do what is asked; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.tuning.stored_study import open_stored

    stored = open_stored(options.study, trust=options.trust)
    with warnings.catch_warnings():
        # Of what Optuna and matplotlib say of odd trials, nothing helps whoever looks at them.
        warnings.simplefilter("ignore")
        code: int = options.action(stored, options, make_console())
    return code


def _show(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.presence import living_controllers

    views, controllers = stored.study.trials(), len(living_controllers(stored.folder))
    best = stored.study.best(_SHOWN)
    if options.json:
        print(json.dumps({**_as_data(stored, views, best), "controllers": controllers}))
        return 0
    print_settings(stored, views, console)
    working = f"{controllers} at work" if controllers else "none at work"
    console.print(f"  {'controllers':<13}{working}")
    shown = views if options.all else best
    if shown:
        console.print()
        console.print(trials_table(shown, list(stored.hpo.objectives)))
    print_running(views, console)
    print_ended(views, console)
    if best:
        console.print(f"next: rlzoo-plus study best {stored.folder}", markup=False)
    return 0


def _plot(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.tuning.study_plots import Overview, plot_study, plot_with_optuna

    study, hpo = stored.study, stored.hpo
    views = study.trials()
    count = 1 if len(hpo.objectives) == 1 else len(views)
    overview = Overview(
        title=f"Study {stored.name}",
        trials=views,
        objectives=hpo.objectives,
        importances=_importances(stored),
        front=[view.number for view in study.best(max(count, 1))],
        seeds=hpo.seeds,
    )
    try:
        if options.kind == "overview":
            out = plot_study(overview, options.out or stored.folder / "study.png")
        else:
            file = options.out or stored.folder / f"{options.kind}.png"
            out = plot_with_optuna(options.kind, study.optuna_study, overview, file)
    except ConfigError:
        raise
    except _ODD as error:
        raise ConfigError(
            f"{stored.folder}: its trials cannot be drawn: {one_line(error)}. "
            "`rlzoo-plus study show --all` lists them."
        ) from error
    console.print(f"drawn: {out}", markup=False)
    return 0


def _importance(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.tuning.study_plots import FEWEST_TRIALS

    found = {name: _importances(stored, place) for place, name in enumerate(stored.hpo.objectives)}
    if options.json:
        print(json.dumps(found))
        return 0
    for name, shares in found.items():
        console.print(f"importance for {name}", style="bold", markup=False)
        if shares:
            console.print(importance_table(shares))
        else:
            console.print(f"not known: it takes {FEWEST_TRIALS} finished trials that differ")
    return 0


def _importances(stored: KnownStudy, objective: int = 0) -> dict[str, float]:
    """Return which values matter.

    Raises:
        ConfigError: The storage holds what Optuna cannot reckon with.
    """
    from rlzoo_plus.tuning.study_plots import importances

    try:
        return importances(stored.study.optuna_study, objective)
    except ConfigError:
        raise
    except _ODD as error:
        raise ConfigError(
            f"{stored.folder}: importance cannot be told of its trials: {one_line(error)}."
        ) from error


def _best(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    views, (number, experiment) = stored.study.trials(), stored.published()
    best = stored.study.best(1 if len(stored.hpo.objectives) == 1 else max(len(views), 1))
    winner = next((view for view in views if view.number == number), None)
    chosen = [winner] if winner is not None else best
    if not chosen:
        if any(view.state == "done" for view in views):
            raise ConfigError(f"{stored.folder}: none of its trials keeps the constraints.")
        raise ConfigError(f"{stored.folder}: no trial is done yet. Let the study go on first.")
    experiment = experiment if winner is not None else None
    if options.json:
        data = [{**asdict(view), "command": stored.train_command(view)} for view in chosen]
        print(json.dumps(finite({"best": data, "experiment": experiment})))
        return 0
    why = "best on fresh seeds" if winner is not None else "best by the metric it was chosen by"
    for view in chosen:
        _print_best(stored, view, why, console)
    if experiment is not None:
        from rlzoo_plus.tuning.experiment_file import winner_options

        found_by = winner_options(stored.folder, experiment) or stored.config_options
        words = ["rlzoo-plus", "train", *found_by, f"experiment={experiment}"]
        console.print("the same as an experiment, with its number of threads:")
        console.print(printable(command_line(words), LONGEST_LINE), markup=False)
    return 0


def _print_best(stored: KnownStudy, view: TrialView, why: str, console: Console) -> None:
    metrics = zip(stored.hpo.objectives, view.values or (), strict=False)
    text = ", ".join(f"{name} {number_text(value)}" for name, value in metrics)
    console.print(f"trial {view.number}, {why}: {text}", markup=False, style="bold")
    console.print(stored.train_command(view), markup=False)
    words = [f"study={stored.reference}", f"trial={view.number}"]
    console.print(command_line(["rlzoo-plus", "train", *words]), markup=False)


def _as_data(stored: KnownStudy, views: list[TrialView], best: list[TrialView]) -> dict[str, Any]:
    data = {
        "study": stored.name,
        "folder": str(stored.folder),
        "storage": stored.place,
        "hpo": stored.hpo.model_dump(mode="json"),
        "base": list(stored.base),
        "counts": counts(views),
        "best": [view.number for view in best],
        "trials": [asdict(view) for view in views],
    }
    found: dict[str, Any] = finite(data)
    return found


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus study",
        description="Look at a study, the trials of `rlzoo-plus train -m hpo=...`.",
        epilog="Example: rlzoo-plus study show cartpole_bullet-ppo",
    )
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    # Named here too, so that help needs neither Optuna nor NumPy.
    kinds = "contour, edf, parallel_coordinate, rank, slice or timeline"
    actions = {
        "show": (_show, "show settings, counts, the best trials and those that run"),
        "plot": (_plot, "draw history, learning curves, importances and values as a PNG"),
        "importance": (_importance, "show which values matter"),
        "best": (_best, "print the command that trains the best trial"),
    }
    for name, (action, text) in actions.items():
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verb.set_defaults(action=action)
        verb.add_argument("study", metavar="S", help="its name below outputs/studies, or a path")
        verb.add_argument(
            "--trust", action="store_true", help="ask its database on another machine"
        )
        if action is _plot:
            verb.add_argument(
                "--kind", default="overview", metavar="PLOT", help=f"overview (default), {kinds}"
            )
            verb.add_argument(
                "--out", type=Path, metavar="PNG", help="default: S/study.png, or S/PLOT.png"
            )
        else:
            verb.add_argument("--json", action="store_true", help="print JSON")
        if action is _show:
            verb.add_argument("--all", action="store_true", help="all trials, not the best ten")
    return parser.parse_args(arguments)

"""`rlzoo-plus study`: show and plot a study, its importances, and the commands of its best."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from rlzoo_plus.analysis.estimates import shown as estimate_text
from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, one_line, printable
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.presence import living_controllers
from rlzoo_plus.tuning.experiment_file import winner_options
from rlzoo_plus.tuning.stored_study import (
    FEWEST_TRIALS,
    KnownStudy,
    Published,
    few_trials_text,
    importances,
    open_stored,
)
from rlzoo_plus.tuning.study_charts import Drawn
from rlzoo_plus.tuning.study_plots import OVERVIEW, plot_study
from rlzoo_plus.tuning.study_report import counts, number_text
from rlzoo_plus.tuning.study_view import (
    importance_table,
    print_ended,
    print_running,
    print_settings,
    trials_table,
)
from rlzoo_plus.tuning.trials import TrialView


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    stored = open_stored(options.study, trust=options.trust)
    with warnings.catch_warnings():
        # What Optuna and matplotlib warn of in odd trials does not help the user.
        warnings.simplefilter("ignore")
        return int(options.action(stored, options, make_console()))


def _show(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    views, controllers = stored.study.trials(), len(living_controllers(stored.folder))
    best = stored.study.best(10)
    if options.json:
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
        print(json.dumps({**finite(data), "controllers": controllers}))
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
        console.print(
            f"next: rlzoo-plus study best {shlex.quote(str(stored.folder))}", markup=False
        )
    return 0


def _plot(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    name = "study" if options.kind == OVERVIEW else options.kind
    drawn = Drawn(
        title=f"Study {stored.name}",
        study=stored.study.optuna_study,
        objectives=list(stored.hpo.objectives),
        importances=_importances(stored),
    )
    with _forged_trials_refused(stored):
        out = plot_study(drawn, options.out or stored.folder / f"{name}.png", options.kind)
    console.print(f"wrote {out}", markup=False)
    return 0


@contextlib.contextmanager
def _forged_trials_refused(stored: KnownStudy) -> Iterator[None]:
    """Turn what Optuna and matplotlib raise for forged trials into a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AssertionError) as error:
        raise ConfigError(
            f"{stored.folder}: its trials cannot be analysed: {one_line(error)}. "
            "`rlzoo-plus study show --all` lists them."
        ) from error


def _importance(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
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
    few = few_trials_text(counts(stored.study.trials()).get("done", 0))
    if few and any(found.values()):
        console.print(few)
    return 0


def _importances(stored: KnownStudy, objective: int = 0) -> dict[str, float]:
    """Return the importance of each hyperparameter for an objective."""
    with _forged_trials_refused(stored):
        return importances(stored.study.optuna_study, objective)


def _best(stored: KnownStudy, options: argparse.Namespace, console: Console) -> int:
    views, report = stored.study.trials(), stored.published()
    best = stored.study.best(1 if len(stored.hpo.objectives) == 1 else max(len(views), 1))
    winner = next((view for view in views if view.number == report.winner), None)
    chosen = [winner] if winner is not None else best
    if not chosen:
        if any(view.state == "done" for view in views):
            raise ConfigError(f"{stored.folder}: none of its trials meets the constraints.")
        raise ConfigError(f"{stored.folder}: no trial is done yet. Run the study first.")
    experiment = report.experiment if winner is not None else None
    if options.json:
        data = [_best_data(stored, view, report) for view in chosen]
        print(json.dumps(finite({"best": data, "experiment": experiment})))
        return 0
    for view in chosen:
        for line in _found(stored, view, report):
            console.print(line, markup=False, style="bold")
        console.print(stored.train_command(view), markup=False)
        words = ["rlzoo-plus", "train", f"study={stored.reference}", f"trial={view.number}"]
        console.print(command_line(words), markup=False)
    if experiment is not None:
        found_by = winner_options(stored.folder, experiment) or stored.config_options
        words = ["rlzoo-plus", "train", *found_by, f"experiment={experiment}"]
        console.print("the same as an experiment, with its number of threads:")
        console.print(printable(command_line(words), LONGEST_LINE), markup=False)
    return 0


def _found(stored: KnownStudy, view: TrialView, report: Published) -> list[str]:
    """Return what is known of how good a trial is: the search's value, and that on fresh seeds."""
    names, again = list(stored.hpo.objectives), report.retrained.get(view.number)
    values = zip(names, view.values or (), strict=False)
    searched = ", ".join(f"{name} {number_text(value)}" for name, value in values)
    found = {name: None if again is None else again.estimate(name) for name in names}
    is_known = any(each is not None for each in found.values())
    how = "best on fresh seeds" if is_known else "best by the metric of the search"
    lines = [f"trial {view.number}, {how}"]
    if again is not None and is_known:
        text = ", ".join(f"{name} {estimate_text(found[name])}" for name in names)
        lines.append(f"  fresh seeds: {text}")
        if again.held_out is not None:
            lines.append(f"  held-out episodes: {again.held_out}")
    lines.append(f"  search: {searched} (the best of many, so too optimistic)")
    if not is_known:
        lines.append("  fresh seeds: not known, it was not trained again")
    return lines


def _best_data(stored: KnownStudy, view: TrialView, report: Published) -> dict[str, Any]:
    again, fresh = report.retrained.get(view.number), {}
    if again is not None:
        found = {name: again.estimate(name) for name in stored.hpo.objectives}
        fresh = {name: None if each is None else asdict(each) for name, each in found.items()}
    return {**asdict(view), "fresh_seeds": fresh, "command": stored.train_command(view)}


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "study",
        "Show a study, the trials of `rlzoo-plus train -m hpo=...`.",
        "show cartpole_bullet-ppo",
    )
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    # Named here too, so that help needs neither Optuna nor NumPy.
    kinds = "optimization_history, intermediate_values, param_importances, slice, pareto_front, "
    kinds += "parallel_coordinate, contour, edf, rank or timeline"
    actions = {
        "show": (_show, "show settings, counts, the best trials and those that run"),
        "plot": (_plot, "plot history, learning curves, importances and values as PNG, SVG or PDF"),
        "importance": (_importance, "show which hyperparameters matter"),
        "best": (_best, "print the commands that train the best trial"),
    }
    for name, (action, text) in actions.items():
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verb.set_defaults(action=action)
        add = verb.add_argument
        add("study", metavar="STUDY", help="name below outputs/studies, or a path")
        add("--trust", action="store_true", help="connect to its database on another machine")
        if action is _plot:
            add("--kind", default=OVERVIEW, metavar="PLOT", help=f"overview (default), {kinds}")
            add("--out", type=Path, metavar="FILE", help="default: study.png, or PLOT.png, in it")
        else:
            add("--json", action="store_true", help="print JSON, for programs")
        if action is _show:
            add("--all", action="store_true", help="all trials, not the best ten")
    return parser.parse_args(arguments)

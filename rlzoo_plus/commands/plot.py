"""Owns `rlzoo-plus plot`: learning curves of runs as a PNG."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rlzoo_plus.analysis.curves import EVALUATION_RETURN, SHARED, plot_learning_curve
from rlzoo_plus.analysis.runs import find_runs, summarise
from rlzoo_plus.analysis.series import load_series, metric_keys
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.runs.open import find_place


def main(argv: list[str]) -> int:
    """Draw the runs that are named on the command line and print where the picture is."""
    arguments = _parse(argv)
    runs = _runs([p if os.path.lexists(p) else find_place(p).path for p in arguments.runs])
    drawn = _with_values(runs, arguments.metric)
    out = arguments.out or _default_out(drawn, arguments.metric)
    print(printable(plot_learning_curve(drawn, out, arguments.metric, arguments.by), LONGEST_LINE))
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus plot",
        description="Draw learning curves of one or more runs as a PNG.\n\n"
        "Example: rlzoo-plus plot outputs/cartpole_bullet --out curves.png",
        epilog="One run: mean and spread of each evaluation, the best one, the training curve.\n"
        "Several: a mean over the seeds of each algorithm and environment, with a 95 %\n"
        "bootstrap interval; runs cut short are drawn, but are not in the mean. A folder stands\n"
        "for all runs in it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="a run, or a folder with runs")
    add("--out", type=Path, metavar="FILE.png", help="default: RUN/plots, or here for several")
    add(
        "--metric",
        default=EVALUATION_RETURN,
        metavar="KEY",
        help="what to draw, e.g. train/loss, success_rate (default: %(default)s)",
    )
    groupings = [name for name in SHARED if name]
    add("--by", choices=groupings, help="what a line stands for (default: algorithm and env)")
    return parser.parse_args(argv)


def _runs(paths: list[Path]) -> list[RunDir]:
    for path in paths:
        if find_runs([path]):
            continue
        owner = next((p for p in path.resolve().parents if RunDir(p).exists()), None)
        mend = (
            f"It is part of a run: give {owner}." if owner else "Give a run, or a folder of runs."
        )
        raise ConfigError(f"{path} holds no run. {mend}")
    return find_runs(paths)


def _with_values(runs: list[RunDir], metric: str) -> list[RunDir]:
    drawn = [run for run in runs if len(load_series(run, metric))]
    if not drawn:
        raise ConfigError(_nothing_to_draw(runs, metric))
    for run in runs:
        if run not in drawn:
            where = printable(run.path, LONGEST_LINE)
            print(f"left out, no {_words(metric)}: {where}", file=sys.stderr)
    return drawn


def _nothing_to_draw(runs: list[RunDir], metric: str) -> str:
    known = set().union(*(metric_keys(run) for run in runs))
    if metric != EVALUATION_RETURN and known:
        return unknown_name("metric", metric, known)
    where = str(runs[0].path) if len(runs) == 1 else f"the {len(runs)} runs"
    summary = summarise(runs[0])
    state = f" ({summary.state} at step {summary.steps or 0:,})" if len(runs) == 1 else ""
    logged = f" Draw one of {', '.join(sorted(known))} with --metric." if known else ""
    return f"{where}: no {_words(metric)} yet{state}. Let it run to its first evaluation.{logged}"


def _words(metric: str) -> str:
    return "evaluations" if metric == EVALUATION_RETURN else f"values of {metric}"


def _default_out(runs: list[RunDir], metric: str) -> Path:
    name = metric.replace("/", "_")
    if len(runs) == 1:
        is_return = metric == EVALUATION_RETURN
        out = runs[0].plots / ("learning_curve.png" if is_return else f"{name}.png")
        check_inside(runs[0].path, out)
        return out
    return Path("learning_curves.png" if metric == EVALUATION_RETURN else f"{name}.png")

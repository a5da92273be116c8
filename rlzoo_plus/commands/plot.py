"""`rlzoo-plus plot`: learning curves of runs as a PNG."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rlzoo_plus.analysis.curves import EVALUATION_RETURN, SHARED, plot_learning_curve
from rlzoo_plus.analysis.runs import find_runs, summarise
from rlzoo_plus.analysis.series import load_series, metric_keys
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.runs.open import find_place


def main(arguments: list[str]) -> int:
    """Plot the given runs and print the path of the file."""
    parser = command_parser(
        "plot",
        "Plot learning curves of one or more runs as a PNG. One run: mean and spread of each "
        "evaluation, the best one, the training curve. Several: a mean over the seeds of each "
        "algorithm and environment, with a 95 % bootstrap interval; unfinished runs are plotted, "
        "but do not count in the mean.",
        "outputs/cartpole_bullet --out curves.png",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run, or a folder for all runs in it")
    add("--out", type=Path, metavar="FILE.png", help="default: RUN/plots; here for several runs")
    metric_help = "what to plot, e.g. train/loss, success_rate (default: %(default)s)"
    add("--metric", default=EVALUATION_RETURN, metavar="KEY", help=metric_help)
    groupings = [name for name in SHARED if name]
    add("--by", choices=groupings, help="what a line stands for (default: algorithm and env)")
    options = parser.parse_args(arguments)
    runs = _runs([Path(p) if os.path.lexists(p) else find_place(p).path for p in options.runs])
    metric: str = options.metric
    values = "evaluations" if metric == EVALUATION_RETURN else f"values of {metric}"
    plotted = [run for run in runs if len(load_series(run, metric))]
    if not plotted:
        raise ConfigError(_nothing_to_plot(runs, metric, values))
    for run in runs:
        if run not in plotted:
            print(f"left out, no {values}: {printable(run.path, LONGEST_LINE)}", file=sys.stderr)
    out = options.out or _default_out(plotted, metric)
    print(printable(plot_learning_curve(plotted, out, metric, options.by), LONGEST_LINE))
    return 0


def _runs(paths: list[Path]) -> list[RunDir]:
    for path in paths:
        if not find_runs([path]):
            owner = next((p for p in path.resolve().parents if RunDir(p).exists()), None)
            fix = f"It is part of a run: give {owner}." if owner else "Give a run or its folder."
            raise ConfigError(f"{path} holds no run. {fix}")
    return find_runs(paths)


def _nothing_to_plot(runs: list[RunDir], metric: str, values: str) -> str:
    known = set().union(*(metric_keys(run) for run in runs))
    if metric != EVALUATION_RETURN and known:
        return unknown_name("metric", metric, known)
    where, state = f"the {len(runs)} runs", ""
    if len(runs) == 1:
        summary = summarise(runs[0])
        where, state = str(runs[0].path), f" ({summary.state} at step {summary.steps or 0:,})"
    logged = f" Plot one of {', '.join(sorted(known))} with --metric." if known else ""
    return f"{where}: no {values} yet{state}. Wait for the first evaluation.{logged}"


def _default_out(runs: list[RunDir], metric: str) -> Path:
    is_return, is_one = metric == EVALUATION_RETURN, len(runs) == 1
    name = metric.replace("/", "_")
    if is_return:
        name = "learning_curve" if is_one else "learning_curves"
    if not is_one:
        return Path(f"{name}.png")
    out = runs[0].plots / f"{name}.png"
    check_inside(runs[0].path, out)
    return out

"""`rlzoo-plus plot`: learning curves, charts and tables of runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlzoo_plus.analysis.charts import KINDS
from rlzoo_plus.analysis.clocks import AXIS_LABELS
from rlzoo_plus.analysis.curves import SHARED, load_curves, plot_curves
from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.scores import Side, latest_of_each_seed, make_sides
from rlzoo_plus.analysis.series import EVALUATION_RETURN, metric_keys
from rlzoo_plus.analysis.shipped_runs import folder_of_new_files
from rlzoo_plus.analysis.style import STYLES, WIDTHS_IN, Style, is_picture, save_plot, style_of
from rlzoo_plus.analysis.tables import FORMATS, table
from rlzoo_plus.analysis.zoo_logs import load_zoo_runs
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.run_groups import RUNS_HELP, run_groups
from rlzoo_plus.commands.typed import CommandParser, command_parser
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.errors import ConfigError, unknown_name

_CURVES = "curves"


def main(arguments: list[str]) -> int:
    """Plot the given runs and print the path of the file, or print a table."""
    options = _parse(arguments)
    groups = run_groups(options.runs) if options.runs else {}
    entries = list({r.summary.path.resolve(): r for runs in groups.values() for r in runs}.values())
    if options.zoo is not None:
        entries += _as_named_here(load_zoo_runs(options.zoo), entries)
    sides: list[Side] = []
    if options.table is not None or options.kind != _CURVES:
        sides = _sides(options, entries)
    if options.table is not None:
        _tabulate(options, sides)
        if not _draws(options):
            return 0
    if options.kind != _CURVES:
        return _chart(options, sides, entries)
    metric: str = options.metric
    values = "evaluations" if metric == EVALUATION_RETURN else f"values of {metric}"
    curves = load_curves(entries, metric, options.x)
    plotted = [run for run, curve in zip(entries, curves, strict=True) if len(curve.series)]
    if not plotted:
        raise ConfigError(_nothing_to_plot(entries, metric, values, options.x))
    for run in entries:
        if run not in plotted:
            why = f"no {values}" + ("" if options.x == "steps" else f" over {options.x}")
            why = run.reason or why
            print(f"left out, {why}: {printable(run.summary.path, LONGEST_LINE)}", file=sys.stderr)
    if options.by is None:
        plotted, notes = latest_of_each_seed(plotted)
        _tell(notes)
    out = options.out or _default_out(plotted, _name_of_curves(plotted, metric))
    style = _style(options)
    _tell_path(plot_curves(plotted, out, metric, options.by, axis=options.x, style=style), options)
    return 0


def _parser() -> CommandParser:
    parser = command_parser(
        "plot",
        "Plot learning curves of one or more runs as PNG, SVG or PDF. One run: mean and spread of "
        "each evaluation, the best one, the training curve. Several: the interquartile mean over "
        "the seeds of each variant, with a 95 % bootstrap interval, and axes for each environment. "
        "Runs that differ in anything but their seed are never averaged unless --by says so. "
        "Unfinished runs are plotted, but do not count in the mean if they were cut short, and "
        "never in scores.",
        "outputs/cartpole_bullet --kind scores --out scores.svg",
    )
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help=RUNS_HELP)
    add("--out", type=Path, metavar="FILE", help="default: RUN/plots; here for several runs")
    metric_help = "what to plot, e.g. train/loss, success_rate (default: %(default)s)"
    add("--metric", default=EVALUATION_RETURN, metavar="KEY", help=metric_help)
    groupings = [name for name in SHARED if name]
    add("--by", choices=groupings, help="what a line stands for (default: a variant)")
    add("--x", choices=list(AXIS_LABELS), default="steps", help="of curves (default: %(default)s)")
    kind_help = "curves, final scores, performance profile, probability of improvement, or steps "
    kind_help += "to a threshold (default: %(default)s)"
    add("--kind", choices=[_CURVES, *KINDS], default=_CURVES, help=kind_help)
    add("--threshold", type=float, metavar="R", help="mean return (default: env.solved_return)")
    score_help = "which evaluation is a run's score (default: %(default)s)"
    add("--score", choices=["final", "best"], default="final", help=score_help)
    table_help = "print a table of scores; with --out FILE.png as well, with --out FILE.md to it"
    add("--table", choices=FORMATS, help=table_help)
    style_help = "paper: a column's width and fonts of 8 points; talk: large (default: %(default)s)"
    add("--style", choices=STYLES, default="screen", help=style_help)
    add("--width", choices=WIDTHS_IN, help="of --style paper (default: ieee, a column)")
    add("--zoo", type=Path, metavar="DIR", help="also the runs in rl_zoo3's log folder")
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    options = _parser().parse_args(in_our_form("plot", arguments))
    if not options.runs and options.zoo is None:
        raise ConfigError("plot needs at least one run: RUN, a folder of runs, or --zoo DIR.")
    if options.kind != _CURVES or not _draws(options):
        others = {"--metric": EVALUATION_RETURN, "--by": None, "--x": "steps"}
        for option, usual in others.items():
            if getattr(options, option[2:]) != usual:
                raise ConfigError(f"{option} is for learning curves. Leave it out, or --kind.")
    if options.threshold is not None and options.kind != "threshold":
        raise ConfigError("--threshold is for --kind threshold.")
    if options.width is not None and options.style != "paper":
        raise ConfigError("--width is for --style paper.")
    return options


def _draws(options: argparse.Namespace) -> bool:
    """Return whether a picture is asked for; beside a table, it must be named."""
    out: Path | None = options.out
    return options.table is None or (out is not None and is_picture(out))


def _tabulate(options: argparse.Namespace, sides: Sequence[Side]) -> None:
    """Print the table of scores, or write it to --out if no picture goes there."""
    is_alone = not _draws(options)
    if is_alone and options.out is not None and options.out.suffix != f".{options.table}":
        raise ConfigError(
            f"--out {printable(options.out)}: with --table {options.table}, name a file that ends "
            f"in .{options.table} for the table, or in .png, .svg or .pdf for a plot beside it."
        )
    text = table(sides, options.table)
    if is_alone and options.out is not None:
        write_atomic(options.out, text)
        print(printable(options.out, LONGEST_LINE))
    else:
        print(text, end="")


def _chart(options: argparse.Namespace, sides: Sequence[Side], entries: Sequence[RunEntry]) -> int:
    last = options.threshold if options.kind == "threshold" else options.score
    figure = KINDS[options.kind](sides, last, _style(options))
    _tell_path(save_plot(figure, options.out or _default_out(entries, options.kind)), options)
    return 0


def _style(options: argparse.Namespace) -> Style:
    return style_of(options.style, options.width or "ieee")


def _sides(options: argparse.Namespace, entries: Sequence[RunEntry]) -> list[Side]:
    sides, notes = make_sides({"": entries}, options.score)
    _tell(notes)
    if not sides:
        raise ConfigError("no finished run has a score yet. Let the runs go on first.")
    return sides


def _tell_path(out: Path, options: argparse.Namespace) -> None:
    # Beside a table, which may be piped into a file.
    where = sys.stdout if options.table is None else sys.stderr
    print(printable(out, LONGEST_LINE), file=where)


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        print(note, file=sys.stderr)


def _as_named_here(others: list[RunEntry], entries: Sequence[RunEntry]) -> list[RunEntry]:
    """Return rl_zoo3's runs with the names that their environments have here."""
    names = {str(run.values.get("env.id")): run.summary.env for run in entries if run.values}
    renamed = []
    for run in others:
        env = names.get(run.env, run.summary.env)
        renamed.append(replace(run, summary=replace(run.summary, env=env)))
    return renamed


def _nothing_to_plot(runs: Sequence[RunEntry], metric: str, values: str, axis: str) -> str:
    known = set().union(*(metric_keys(run.run) for run in runs))
    if metric != EVALUATION_RETURN and known and metric not in known:
        return unknown_name("metric", metric, known)
    where, state = f"the {len(runs)} runs", ""
    if len(runs) == 1:
        summary = runs[0].summary
        where, state = str(summary.path), f" ({summary.state} at step {summary.steps or 0:,})"
    if axis != "steps" and any(run.evaluations for run in runs):
        source = "monitor/" if axis == "episodes" else "metrics.jsonl"
        return f"{where}: {source} does not say where steps lie in {axis}. Use --x steps."
    logged = f" Plot one of {', '.join(sorted(known))} with --metric." if known else ""
    return f"{where}: no {values} yet{state}. Wait for the first evaluation.{logged}"


def _name_of_curves(runs: Sequence[RunEntry], metric: str) -> str:
    if metric != EVALUATION_RETURN:
        return metric.replace("/", "_")
    return "learning_curve" if len(runs) == 1 else "learning_curves"


def _default_out(runs: Sequence[RunEntry], name: str) -> Path:
    """Return where a plot goes: that of one run into its folder, of several beside the user."""
    if len(runs) != 1:
        return Path(f"{name}.png")
    folder = folder_of_new_files(runs[0].run)
    out = folder / "plots" / f"{name}.png"
    check_inside(folder, out)
    return out

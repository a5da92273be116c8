"""The report of a study as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.sweeps.summary import Estimate, shown
from rlzoo_plus.tuning.report import (
    RETURNS,
    Retrained,
    StudyReport,
    change,
    counts,
    first_value,
    number_text,
    ranked,
    retrained_of,
    train_command,
    value_text,
)
from rlzoo_plus.tuning.trials import TrialState, TrialView

_MOST_REASONS = 20


def markdown(report: StudyReport) -> str:
    """Return the report as text."""
    parts = [
        [f"# Study {_cell(report.name)}", "", *_overview(report)],
        _best(report),
        _values(report),
        _commands(report),
        _space(report),
        _problems(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _overview(report: StudyReport) -> list[str]:
    hpo = report.hpo
    aims = ", ".join(f"{direction} {name}" for name, direction in hpo.objectives.items())
    numbers = ", ".join(f"{n} {state}" for state, n in counts(report.trials).items())
    seeds = "1 seed" if hpo.seeds == 1 else f"{hpo.seeds} seeds"
    length = "" if report.trial_timesteps is None else f", {report.trial_timesteps:,} steps each"
    lines = [
        f"- aim: {aims}"
        + (f"; {', '.join(map(_cell, hpo.constraints))}" if hpo.constraints else ""),
        f"- trials: {numbers or 'none yet'} (of {hpo.n_trials}), {seeds}{length}",
        f"- sampler {_cell(hpo.sampler)}, pruner {_cell(hpo.pruner)}, seed {hpo.seed}",
    ]
    if report.base:
        lines.append(f"- for all of them: {_code(command_line(list(report.base)))}")
    return lines


def _best(report: StudyReport) -> list[str]:
    views = ranked(report)
    if not views:
        done = any(view.state is TrialState.DONE for view in report.trials)
        return ["No trial keeps the constraints." if done else "No trial is done yet."]
    title = "Best trials" if len(report.objectives) == 1 else "Pareto front"
    heads = ["trial"]
    for name in report.objectives:
        heads += [name, f"{name}, retrained", "change"]
    heads += [name for name in RETURNS if name not in report.objectives] + ["held-out episodes"]
    rows = [_best_row(report, view) for view in views]
    return [f"## {title}", "", *_table(heads, rows), "", *_legend(report)]


def _best_row(report: StudyReport, view: TrialView) -> list[str]:
    again = retrained_of(report, view.number)
    mark = " (winner)" if view.number == report.winner and again is not None else ""
    row = [f"{view.number}{mark}"]
    for name in report.objectives:
        first, estimate = first_value(report, view, name), _estimate(again, name)
        row += [number_text(first), shown(estimate), change_text(first, estimate)]
    row += [shown(_estimate(again, name)) for name in RETURNS if name not in report.objectives]
    return [*row, held_out_text(again)]


def _estimate(again: Retrained | None, name: str) -> Estimate | None:
    return None if again is None else again.estimate(name)


def change_text(first: float | None, again: Estimate | None) -> str:
    """Return how the figure changed on fresh seeds: `-12.5 (-5 %)`, `-` if that is not known."""
    difference = change(first, again)
    if difference is None or not first:
        return "-" if difference is None else f"{difference:+.4g}"
    return f"{difference:+.4g} ({100 * difference / abs(first):+.0f} %)"


def held_out_text(again: Retrained | None) -> str:
    """Return what the policy returned on held-out episodes, `-` if it played none."""
    if again is None or again.held_out is None:
        return "-"
    held_out = again.held_out
    mean, std = number_text(held_out.mean), number_text(held_out.std)
    return f"{mean} ± {std} ({held_out.episodes})"


def _legend(report: StudyReport) -> list[str]:
    name = report.objectives[0]
    lines = [
        f"`{name}` is the metric that a trial was chosen by, and flatters for that reason. The "
        "columns behind it are from runs with fresh seeds: interquartile mean [95 % bootstrap "
        "interval], or (lowest to highest) of fewer than five seeds; `change` is their difference "
        "from the first one. Held-out episodes: mean ± deviation (episodes)."
    ]
    steps, full = report.trial_timesteps, report.full_timesteps
    if steps is not None and full is not None and steps != full:
        lines += [
            "",
            f"Trials ran {steps:,} steps and the retrained runs {full:,}: the change also holds "
            "what that brings.",
        ]
    if not report.retrained:
        lines += ["", "No trial was trained again: what the figures are worth is not known."]
    return lines


def _values(report: StudyReport) -> list[str]:
    views = ranked(report)
    names = list(dict.fromkeys(name for view in views for name in view.params))
    if not names:
        return []
    heads = ["value", *(f"trial {view.number}" for view in views)]
    rows = [[_code(name), *(_param(view.params, name) for view in views)] for name in names]
    return ["## Values", "", *_table(heads, rows)]


def _param(params: Mapping[str, Any], name: str) -> str:
    return _cell(value_text(params[name])) if name in params else "-"


def _commands(report: StudyReport) -> list[str]:
    if report.winner is None:
        return []
    lines = ["## Train it", "", "```sh"]
    if report.experiment is not None:
        words = printable(f"{report.option}experiment={report.experiment}")
        lines.append(f"rlzoo-plus train {words}   # the winner")
    lines.append(f"{train_command(printable(report.name), report.winner)}   # any trial's number")
    return [*lines, "```"]


def _space(report: StudyReport) -> list[str]:
    if not report.hpo.space:
        return []
    rows = [[_code(key), _code(value)] for key, value in report.hpo.space.items()]
    return ["## Search space", "", *_table(["key", "values"], rows)]


def _problems(report: StudyReport) -> list[str]:
    failed = [view for view in report.trials if view.state is TrialState.FAILED]
    if not failed:
        return []
    lines = [f"- trial {view.number}: {_cell(view.reason)}" for view in failed[:_MOST_REASONS]]
    more = len(failed) - _MOST_REASONS
    return ["## Failed trials", "", *lines, *([f"- and {more} more"] if more > 0 else [])]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(text: object) -> str:
    """Return text that cannot end its cell or become markup."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _code(text: object) -> str:
    return f"`{printable(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"

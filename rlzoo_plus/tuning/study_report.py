"""The report of a study: what was tried, and how good the best trials are on fresh seeds.

A trial is chosen because its metric is high, so that metric flatters. Beside it stands what the
same values give on seeds that no trial has seen, and on held-out episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import finite, write_atomic, write_json
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.sweeps.summary import Estimate, estimate, shown
from rlzoo_plus.tuning.trials import TrialState, TrialView

FILES = ("report.json", "report.md")
# What is told of retrained runs besides the objectives.
RETURNS = ("final_return", "best_return")


@dataclass(frozen=True)
class HeldOut:
    """What a policy returned on held-out episodes."""

    mean: float
    std: float
    episodes: int


@dataclass(frozen=True)
class Retrained:
    """A trial's values, trained again.

    Attributes:
        number: The trial.
        seeds: The fresh seeds.
        metrics: The metrics of each seed's run, by name; a run that failed has none.
        held_out: What the policy returned on held-out episodes, None if it played none.
    """

    number: int
    seeds: tuple[int, ...]
    metrics: tuple[Mapping[str, float], ...]
    held_out: HeldOut | None = None

    def estimate(self, name: str) -> Estimate | None:
        """Return a metric's interquartile mean over the seeds; None if no seed has it."""
        values = [metrics[name] for metrics in self.metrics if _is_number(metrics.get(name))]
        return estimate(values)


@dataclass(frozen=True)
class StudyReport:
    """All that is reported of a study.

    Attributes:
        name: As `study=<name>` takes it.
        hpo: Its settings.
        base: The overrides that hold for every trial.
        trials: All trials.
        best: The best of them in their order; of several objectives, the Pareto front.
        trial_timesteps: Environment steps of a trial's run, None if not known.
        full_timesteps: Environment steps of a retrained run, None if not known.
        retrained: The best ones, trained again.
        experiment: The winner's experiment, as `experiment=<name>` takes it.
        option: The option of `train` that finds its file, with a space behind it; empty if it
            needs none.
    """

    name: str
    hpo: HpoConfig
    base: Sequence[str]
    trials: Sequence[TrialView]
    best: Sequence[TrialView]
    trial_timesteps: int | None = None
    full_timesteps: int | None = None
    retrained: Sequence[Retrained] = field(default_factory=tuple)
    experiment: str | None = None
    option: str = ""

    @property
    def objectives(self) -> list[str]:
        """The names of the objectives, in the order of a trial's values."""
        return list(self.hpo.objectives)

    @property
    def winner(self) -> int | None:
        """The trial to use: the best of those trained again, else the best of all."""
        chosen = choose_winner(self.retrained, self.hpo)
        if chosen is not None:
            return chosen.number
        return self.best[0].number if self.best else None


def choose_winner(retrained: Sequence[Retrained], hpo: HpoConfig) -> Retrained | None:
    """Return which trial is best on fresh seeds by the first objective; None if none is known."""
    name, direction = next(iter(hpo.objectives.items()))
    known = [(each, estimate) for each in retrained if (estimate := each.estimate(name))]
    if not known:
        return None
    sign = 1.0 if direction == "maximize" else -1.0
    return max(known, key=lambda pair: sign * pair[1].iqm)[0]


def counts(trials: Sequence[TrialView]) -> dict[str, int]:
    """Return how many trials are in each state, without the states that none is in."""
    found = Counter(view.state for view in trials)
    return {str(state): found[state] for state in TrialState if found[state]}


def write_report(folder: Path, report: StudyReport) -> list[Path]:
    """Write report.json and report.md; return their paths."""
    files = [folder / name for name in FILES]
    write_json(files[0], as_data(report))
    write_atomic(files[1], markdown(report))
    return files


def as_data(report: StudyReport) -> dict[str, Any]:
    """Return a report as plain data; what is not known, or is no number, is null."""
    data = {
        "study": report.name,
        "hpo": report.hpo.model_dump(mode="json"),
        "base": list(report.base),
        "trial_timesteps": report.trial_timesteps,
        "full_timesteps": report.full_timesteps,
        "counts": counts(report.trials),
        "best": [_trial(report, view) for view in ranked(report)],
        "winner": report.winner,
        "experiment": report.experiment,
        "commands": [train_command(report.name, view.number) for view in ranked(report)],
    }
    return {key: finite(value) for key, value in data.items()}


def ranked(report: StudyReport) -> list[TrialView]:
    """Return the best trials, and behind them those that were trained again besides."""
    numbers = {view.number for view in report.best}
    again = {each.number for each in report.retrained} - numbers
    return [*report.best, *(view for view in report.trials if view.number in again)]


def retrained_of(report: StudyReport, number: int) -> Retrained | None:
    """Return what became of a trial's values on fresh seeds."""
    return next((each for each in report.retrained if each.number == number), None)


def first_value(report: StudyReport, view: TrialView, name: str) -> float | None:
    """Return the metric that a trial was chosen by, None if it has none."""
    if view.values is None or len(view.values) != len(report.objectives):
        return None
    value = view.values[report.objectives.index(name)]
    return value if _is_number(value) else None


def change(first: float | None, again: Estimate | None) -> float | None:
    """Return by how much the metric differs on fresh seeds; below 0: it has shrunk."""
    return None if first is None or again is None else again.iqm - first


def train_command(study: str, number: int) -> str:
    """Return the command that trains a trial's values."""
    from rlzoo_plus.artifacts.provenance import command_line

    return command_line(["rlzoo-plus", "train", f"study={study}", f"trial={number}"])


def _trial(report: StudyReport, view: TrialView) -> dict[str, Any]:
    again = retrained_of(report, view.number)
    data: dict[str, Any] = {
        "number": view.number,
        "values": {name: first_value(report, view, name) for name in report.objectives},
        "metrics": dict(view.metrics),
        "params": dict(view.params),
        "overrides": list(view.overrides),
        "folder": view.folder,
        "retrained": None,
    }
    if again is not None:
        data["retrained"] = _again(report, view, again)
    return data


def _again(report: StudyReport, view: TrialView, again: Retrained) -> dict[str, Any]:
    names = dict.fromkeys((*report.objectives, *RETURNS))
    estimates = {name: again.estimate(name) for name in names}
    return {
        "seeds": list(again.seeds),
        "runs": [dict(metrics) for metrics in again.metrics],
        "iqm": {
            name: None if found is None else asdict(found) for name, found in estimates.items()
        },
        "change": {
            name: change(first_value(report, view, name), estimates[name])
            for name in report.objectives
        },
        "held_out": None if again.held_out is None else asdict(again.held_out),
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def number_text(value: float | None) -> str:
    """Return a metric as text, `-` if there is none."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "-"


def value_text(value: object) -> str:
    """Return a trial's value as text that is safe to print."""
    return number_text(value) if isinstance(value, float) else printable(value, 60)


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
    more = [name for name in RETURNS if name not in report.objectives]
    heads, *rows = best_table(report, "retrained", more)
    return [f"## {title}", "", *_table(heads, rows), "", *_legend(report)]


def best_table(report: StudyReport, again: str, more: Sequence[str] = ()) -> list[list[str]]:
    """Return the best trials as rows of text: what they were chosen by, and on fresh seeds.

    Args:
        report: The report.
        again: What the columns of the retrained runs are called.
        more: Metrics of the retrained runs to show besides the objectives.

    Returns:
        The row of heads, then a row for each trial.
    """
    heads = ["trial"]
    for name in report.objectives:
        heads += [name, f"{name}, {again}", "change"]
    rows = [[*heads, *more, "held-out episodes"]]
    for view in ranked(report):
        runs = retrained_of(report, view.number)
        mark = " (winner)" if view.number == report.winner and runs is not None else ""
        row = [f"{view.number}{mark}"]
        for name in report.objectives:
            first, estimate = first_value(report, view, name), _estimate(runs, name)
            row += [number_text(first), shown(estimate), change_text(first, estimate)]
        row += [shown(_estimate(runs, name)) for name in more]
        rows.append([*row, held_out_text(runs)])
    return rows


def _estimate(again: Retrained | None, name: str) -> Estimate | None:
    return None if again is None else again.estimate(name)


def change_text(first: float | None, again: Estimate | None) -> str:
    """Return how the metric changed on fresh seeds: `-12.5 (-5 %)`, `-` if that is not known."""
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
        lines += ["", "No trial was trained again: what the metrics are worth is not known."]
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

"""The report of a study: what was tried, and how good the best trials are on fresh seeds.

A trial is chosen because its metric is high, so that metric is too optimistic. The report also has
the metric of the same values on seeds that no trial has seen, and on held-out episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.estimates import Estimate, estimate, shown
from rlzoo_plus.analysis.series import finite as known_number
from rlzoo_plus.analysis.tables import markdown_table
from rlzoo_plus.artifacts.atomic import finite, write_atomic, write_json
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.tuning.study_folder import REPORTS
from rlzoo_plus.tuning.trials import TrialState, TrialView

# What is reported of retrained runs besides the objectives.
RETURNS = ("final_return", "best_return")
_MOST_REASONS = 20


@dataclass(frozen=True)
class HeldOut:
    """What a policy returned on held-out episodes."""

    mean: float
    std: float
    episodes: int

    def __str__(self) -> str:
        return f"{number_text(self.mean)} ± {number_text(self.std)} ({self.episodes})"


@dataclass(frozen=True)
class Retrained:
    """A trial's values, trained again with fresh seeds."""

    number: int
    seeds: tuple[int, ...]
    metrics: tuple[Mapping[str, float], ...]  # Of each seed's run, by name; none if it failed
    held_out: HeldOut | None = None  # None if it played no held-out episodes

    def estimate(self, name: str) -> Estimate | None:
        """Return a metric's interquartile mean over the seeds; None if no seed has it."""
        found = (known_number(metrics.get(name)) for metrics in self.metrics)
        return estimate([value for value in found if value is not None])


@dataclass(frozen=True)
class StudyReport:
    """All that is reported of a study."""

    name: str  # As `study=<name>` takes it
    hpo: HpoConfig
    base: Sequence[str]  # The overrides that hold for every trial
    trials: Sequence[TrialView]
    best: Sequence[TrialView]  # In their order; of several objectives, the Pareto front
    trial_timesteps: int | None = None  # Environment steps of a trial's run
    full_timesteps: int | None = None  # Environment steps of a retrained run
    retrained: Sequence[Retrained] = field(default_factory=tuple)  # The best, trained again
    experiment: str | None = None  # The winner's, as `experiment=<name>` takes it
    option: str = ""  # Finds its file, followed by a space; empty if none is needed

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

    @property
    def ranked(self) -> list[TrialView]:
        """The best trials, then others that were trained again."""
        again = {each.number for each in self.retrained} - {view.number for view in self.best}
        return [*self.best, *(view for view in self.trials if view.number in again)]

    def retrained_of(self, view: TrialView) -> Retrained | None:
        """Return the retrained runs of a trial."""
        return next((each for each in self.retrained if each.number == view.number), None)

    def values_of(self, view: TrialView) -> dict[str, float | None]:
        """Return the objectives' values that a trial was chosen by, None where it has none."""
        values: Sequence[float | None] = view.values or ()
        if len(values) != len(self.objectives):
            values = [None] * len(self.objectives)
        pairs = zip(self.objectives, values, strict=True)
        return {name: known_number(value) for name, value in pairs}


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


def counts_text(trials: Sequence[TrialView]) -> str:
    """Return how many trials are in each state, as text."""
    return ", ".join(f"{n} {state}" for state, n in counts(trials).items()) or "none yet"


def write_report(folder: Path, report: StudyReport) -> list[Path]:
    """Write report.json and report.md; return their paths."""
    files = [folder / name for name in REPORTS]
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
        "best": [_trial(report, view) for view in report.ranked],
        "winner": report.winner,
        "experiment": report.experiment,
        "commands": [_train_command(report.name, view.number) for view in report.ranked],
    }
    return {key: finite(value) for key, value in data.items()}


def _trial(report: StudyReport, view: TrialView) -> dict[str, Any]:
    values, again = report.values_of(view), report.retrained_of(view)
    data: dict[str, Any] = {
        "number": view.number,
        "values": values,
        "metrics": dict(view.metrics),
        "params": dict(view.params),
        "used": view.used,
        "overrides": list(view.overrides),
        "folder": view.folder,
        "retrained": None,
    }
    if again is not None:
        found = {name: again.estimate(name) for name in dict.fromkeys((*values, *RETURNS))}
        data["retrained"] = {
            "seeds": list(again.seeds),
            "runs": [dict(metrics) for metrics in again.metrics],
            "iqm": {name: None if each is None else asdict(each) for name, each in found.items()},
            "change": {name: _change(value, found[name]) for name, value in values.items()},
            "held_out": None if again.held_out is None else asdict(again.held_out),
        }
    return data


def stored_retrained(trial: Mapping[str, Any]) -> Retrained | None:
    """Return the retrained runs in a trial of report.json, which may be untrusted; None if none."""
    data, number = trial.get("retrained"), trial.get("number")
    if not isinstance(data, dict) or type(number) is not int:
        return None
    seeds, runs, played = (data.get(key) for key in ("seeds", "runs", "held_out"))
    if not isinstance(seeds, list) or not isinstance(runs, list):
        return None
    metrics = tuple(
        {str(k): number for k, v in run.items() if (number := known_number(v)) is not None}
        for run in runs
        if isinstance(run, dict)
    )
    held_out = None
    if isinstance(played, dict):
        mean, std = known_number(played.get("mean")), known_number(played.get("std"))
        episodes = played.get("episodes")
        if mean is not None and std is not None and type(episodes) is int:
            held_out = HeldOut(mean, std, episodes)
    whole = tuple(seed for seed in seeds if type(seed) is int)
    return Retrained(number, whole, metrics, held_out)


def _change(first: float | None, again: Estimate | None) -> float | None:
    """Return by how much the metric differs on fresh seeds; below 0: it is smaller."""
    return None if first is None or again is None else again.iqm - first


def _train_command(study: str, number: int) -> str:
    return command_line(["rlzoo-plus", "train", f"study={study}", f"trial={number}"])


def number_text(value: float | None) -> str:
    """Return a metric as text, `-` if there is none."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "-"


def param_text(view: TrialView, name: str) -> str:
    """Return a value that a trial used as text that is safe to print, `-` if it has none."""
    value = view.used.get(name, "-")
    return number_text(value) if isinstance(value, float) else printable(value, 60)


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
    constraints = f"; {', '.join(map(_cell, hpo.constraints))}" if hpo.constraints else ""
    seeds = "1 seed" if hpo.seeds == 1 else f"{hpo.seeds} seeds"
    length = "" if report.trial_timesteps is None else f", {report.trial_timesteps:,} steps each"
    lines = [
        f"- aim: {aims}{constraints}",
        f"- trials: {counts_text(report.trials)} (of {hpo.n_trials}), {seeds}{length}",
        f"- sampler {_cell(hpo.sampler)}, pruner {_cell(hpo.pruner)}, seed {hpo.seed}",
    ]
    if report.base:
        lines.append(f"- for all of them: {_code(command_line(list(report.base)))}")
    return lines


def _best(report: StudyReport) -> list[str]:
    if not report.ranked:
        done = any(view.state is TrialState.DONE for view in report.trials)
        return ["No trial keeps the constraints." if done else "No trial is done yet."]
    title = "Best trials" if len(report.objectives) == 1 else "Pareto front"
    more = [name for name in RETURNS if name not in report.objectives]
    heads, *rows = best_table(report, "fresh seeds", more)
    lines = [f"## {title}", "", *markdown_table(heads, rows), ""]
    lines.append(
        "`chosen by` is what the trial's own runs gave: the best of many trials, and too "
        "optimistic for that reason. `fresh seeds` are runs trained again: interquartile mean "
        "[95 % bootstrap interval], `-` below three seeds, `(n=...)` below five, where it is too "
        "narrow; `change` is their difference from the first one. Held-out episodes: mean ± "
        "deviation (episodes)."
    )
    steps, full = report.trial_timesteps, report.full_timesteps
    if steps is not None and full is not None and steps != full:
        lines += [
            "",
            f"Trials ran {steps:,} steps and the retrained runs {full:,}: the change also has the "
            "effect of that.",
        ]
    if not report.retrained:
        lines += ["", "No trial was trained again: what the metrics are worth is not known."]
    return lines


def best_table(report: StudyReport, again: str, more: Sequence[str] = ()) -> list[list[str]]:
    """Return the heads and a row of text for each of the best trials.

    A row has the metrics that the trial was chosen by, and on fresh seeds. `again` is the title of
    those columns, `more` are metrics to show besides the objectives.
    """
    heads = [
        part
        for name in report.objectives
        for part in (f"{name}, chosen by", f"{name}, {again}", "change")
    ]
    rows = [["trial", *heads, *more, "held-out episodes"]]
    for view in report.ranked:
        runs = report.retrained_of(view)
        values = report.values_of(view)
        names = (*values, *more)
        found = {name: runs.estimate(name) if runs else None for name in names}
        mark = " (winner)" if view.number == report.winner and runs is not None else ""
        row = [f"{view.number}{mark}"]
        for name, first in values.items():
            difference = _change(first, found[name])
            change = "-" if difference is None else f"{difference:+.4g}"
            if difference is not None and first:
                change += f" ({100 * difference / abs(first):+.0f} %)"
            row += [number_text(first), shown(found[name]), change]
        played = str(runs.held_out) if runs is not None and runs.held_out is not None else "-"
        rows.append([*row, *(shown(found[name]) for name in more), played])
    return rows


def _values(report: StudyReport) -> list[str]:
    views = report.ranked
    names = list(dict.fromkeys(name for view in views for name in view.used))
    if not names:
        return []
    heads = ["value", *(f"trial {view.number}" for view in views)]
    rows = [[_code(name), *(_cell(param_text(view, name)) for view in views)] for name in names]
    return ["## Values", "", *markdown_table(heads, rows)]


def _commands(report: StudyReport) -> list[str]:
    if report.winner is None:
        return []
    lines = ["## Train it", "", "```sh"]
    if report.experiment is not None:
        words = printable(f"{report.option}experiment={report.experiment}")
        lines.append(f"rlzoo-plus train {words}   # the winner")
    command = _train_command(printable(report.name), report.winner)
    return [*lines, f"{command}   # any trial's number", "```"]


def _space(report: StudyReport) -> list[str]:
    rows = [[_code(key), _code(value)] for key, value in report.hpo.space.items()]
    return ["## Search space", "", *markdown_table(["key", "values"], rows)] if rows else []


def _problems(report: StudyReport) -> list[str]:
    failed = [view for view in report.trials if view.state is TrialState.FAILED]
    lines = [f"- trial {view.number}: {_cell(view.reason)}" for view in failed[:_MOST_REASONS]]
    more = len(failed) - _MOST_REASONS
    lines += [f"- and {more} more"] if more > 0 else []
    return ["## Failed trials", "", *lines] if lines else []


def _cell(text: object) -> str:
    """Return text that cannot end its cell or become markup."""
    return printable(text).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _code(text: object) -> str:
    return f"`{printable(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"

"""The report of a study: what was tried, and how good the best trials are on fresh seeds.

A trial is chosen because its figure is high, so that figure flatters. Beside it stands what the
same values give on seeds that no trial has seen, and on held-out episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import finite, write_atomic, write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.sweeps.summary import Estimate, estimate
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
        figures: The figures of each seed's run, by name; a run that failed has none.
        held_out: What the policy returned on held-out episodes, None if it played none.
    """

    number: int
    seeds: tuple[int, ...]
    figures: tuple[Mapping[str, float], ...]
    held_out: HeldOut | None = None

    def estimate(self, name: str) -> Estimate | None:
        """Return a figure's interquartile mean over the seeds; None if no seed has it."""
        values = [figures[name] for figures in self.figures if _is_number(figures.get(name))]
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
    from rlzoo_plus.tuning.report_text import markdown

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
    """Return the figure that a trial was chosen by, None if it has none."""
    if view.values is None or len(view.values) != len(report.objectives):
        return None
    value = view.values[report.objectives.index(name)]
    return value if _is_number(value) else None


def change(first: float | None, again: Estimate | None) -> float | None:
    """Return by how much the figure differs on fresh seeds; below 0: it has shrunk."""
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
        "figures": dict(view.figures),
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
        "runs": [dict(figures) for figures in again.figures],
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
    """Return a figure as text, `-` if there is none."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "-"


def value_text(value: object) -> str:
    """Return a trial's value as text that is safe to print."""
    return number_text(value) if isinstance(value, float) else printable(value, 60)

"""The results of a run, as in its files: the record of an evaluation, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

# Of a resumed run that is neither known to be the same nor known to differ.
NO_DIFFERENCE = "no difference found"
# How the reason begins why a run that was given more steps is not the one of that length.
EXTENDED = "extended from "
# Why a run that learns from what another process did is not repeatable.
ANOTHER_ACTED = "another process acted meanwhile: how old its weights were is not repeatable"
# The numbers of an evaluation that every record has; all others are in its `metrics`.
EVALUATION_NUMBERS = ("mean_return", "std_return", "iqm_return", "success_rate")


class EvaluationRecord(TypedDict):
    """One evaluation: a line of evaluations.jsonl, also in result.json and beside a bundle."""

    step: int  # environment steps taken before it
    returns: list[float]  # of each episode
    mean_return: float
    std_return: float
    iqm_return: float  # interquartile mean
    success_rate: float | None  # share of episodes; None if the environment reports no success
    episode_lengths: list[int]  # environment steps
    metrics: dict[str, float]  # all other metrics by name; old runs' records lack it


def recorded_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an untrusted evaluation record by name: also NaN, never None."""
    metrics = record.get("metrics")
    found = {name: record.get(name) for name in EVALUATION_NUMBERS}
    found = {**(metrics if isinstance(metrics, Mapping) else {}), **found}
    return {
        str(name): value
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a run, as in result.json."""

    state: str  # `finished` or `interrupted`
    reason: str  # why it ended
    num_timesteps: int  # environment steps taken
    training_time_s: float  # in the learning loop, evaluations included
    best: EvaluationRecord | None  # the best evaluation, None without evaluations
    final: EvaluationRecord | None  # the last evaluation, None without evaluations
    solved: bool | None  # whether the best reached `env.solved_return`; None without it
    config_hash: str  # of every key that decides the outcome
    resumed_at: list[int] = field(default_factory=list)  # environment steps
    # Whether it is, bit for bit, the run that it would have been without interruptions: true if
    # that is certain, false if a difference was found, otherwise "no difference found".
    exact: bool | str = True
    inexact_since: int | None = None  # the step after which it may differ
    inexact_because: list[str] = field(default_factory=list)

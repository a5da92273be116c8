"""What a run found out, as its files hold it: the record of an evaluation, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

# Of a resumed run of which nothing proves either that it is the same or that it is another.
NO_DIFFERENCE = "no difference found"
# The numbers of an evaluation that every record has; all others are in its `metrics`.
EVALUATION_NUMBERS = ("mean_return", "std_return", "iqm_return", "success_rate")


class EvaluationRecord(TypedDict):
    """One evaluation: a line of evaluations.jsonl, also in result.json and beside a bundle.

    Attributes:
        step: Environment steps taken before it.
        returns: Return of each episode.
        mean_return: Their mean.
        std_return: Their standard deviation.
        iqm_return: Their interquartile mean.
        success_rate: Share of successful episodes, None if the environment does not report it.
        episode_lengths: Steps of each episode.
        metrics: Everything else that was measured, by name; records of runs from before there
            were metrics lack it.
    """

    step: int
    returns: list[float]
    mean_return: float
    std_return: float
    iqm_return: float
    success_rate: float | None
    episode_lengths: list[int]
    metrics: dict[str, float]


def recorded_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what an evaluation's record says of all its episodes, by name: also NaN, never None.

    Args:
        record: A record of this or an earlier version, which anybody may have written.
    """
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
    """The outcome of a run, as in result.json.

    Attributes:
        state: `finished` or `interrupted`.
        reason: Why it ended.
        num_timesteps: Environment steps taken.
        training_time_s: Seconds in the learning loop, evaluations included.
        best: Record of the best evaluation, None without evaluations.
        final: Record of the last evaluation, the same way.
        solved: Whether the best reached `env.solved_return`; None if that is not known.
        config_hash: Hash of all that decides the outcome.
        resumed_at: Environment steps at which the run went on after an interruption.
        exact: Whether it is, bit for bit, the run that would have been without interruptions: true
            where that is certain, false where a difference was found, else "no difference found".
        inexact_since: The step after which it may differ, None if no difference was found.
        inexact_because: Why it may.
    """

    state: str
    reason: str
    num_timesteps: int
    training_time_s: float
    best: EvaluationRecord | None
    final: EvaluationRecord | None
    solved: bool | None
    config_hash: str
    resumed_at: list[int] = field(default_factory=list)
    exact: bool | str = True
    inexact_since: int | None = None
    inexact_because: list[str] = field(default_factory=list)

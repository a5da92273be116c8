"""The outcome of a run, as `result.json` holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Of a resumed run of which nothing proves either that it is the same or that it is another.
NO_DIFFERENCE = "no difference found"


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
    best: dict[str, Any] | None
    final: dict[str, Any] | None
    solved: bool | None
    config_hash: str
    resumed_at: list[int] = field(default_factory=list)
    exact: bool | str = True
    inexact_since: int | None = None
    inexact_because: list[str] = field(default_factory=list)

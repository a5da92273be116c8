"""A trial as the rest of the code sees it, apart from Optuna."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class TrialState(StrEnum):
    """What became of a trial.

    A requeued trial is an attempt that was lost with its controller; another trial, its
    successor, takes its place and its directory. An invalid trial is a draw that is no possible
    configuration, or one more than `n_trials`; neither of these counts as one of the trials.
    """

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    PRUNED = "pruned"
    FAILED = "failed"
    REQUEUED = "requeued"
    INVALID = "invalid"


COUNTED = (TrialState.RUNNING, TrialState.DONE, TrialState.PRUNED, TrialState.FAILED)


@dataclass(frozen=True)
class TrialView:
    """A trial.

    Attributes:
        number: Its number in the study, from 0.
        state: What became of it.
        values: The objectives' values in the order of `hpo.objectives`, None if there are none.
        params: What the sampler drew, by the name of the dimension.
        overrides: What it changes: `key=value`, as on the command line.
        folder: Its directory below the study's, `trials/<number of its first attempt>`.
        reason: Why it failed or was pruned.
        figures: All figures of its runs, averaged over seeds, by name.
        intermediate: What was reported while it ran, by rung: twentieths of a run, those of a
            later seed behind those of the earlier ones.
        violations: How much each constraint is broken; zero or less: it is kept.
        duration_s: Time from its beginning to its end [s], None while it runs.
        retry_of: The number of the attempt that it takes the place of.
        owner: The controller that works, or worked, on it.
    """

    number: int
    state: TrialState
    values: tuple[float, ...] | None = None
    params: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    folder: str = ""
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    intermediate: dict[int, float] = field(default_factory=dict)
    violations: tuple[float, ...] = ()
    duration_s: float | None = None
    retry_of: int | None = None
    owner: str = ""

    @property
    def is_feasible(self) -> bool:
        """Tell whether it keeps all constraints."""
        return all(violation <= 0 for violation in self.violations)

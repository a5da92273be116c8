"""Ends a trial in a storage: once, whoever is first, and as often as the line breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

# How Optuna's own Trial.set_constraint names them.
_CONSTRAINT = "constraints:"


@dataclass(frozen=True)
class Ending:
    """How a trial ends.

    Attributes:
        state: COMPLETE, PRUNED or FAIL.
        values: The objectives' values of a complete trial.
        attributes: What is noted beside.
        violations: How much each constraint is broken, by its key.
    """

    state: TrialState
    values: Sequence[float] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)


def end_trial(storage: BaseStorage, trial_id: int, ending: Ending) -> bool:
    """End a trial; return False if it had ended otherwise before. Safe to be called again."""
    try:
        # Attributes first: a trial that has ended cannot be changed.
        for key, value in ending.attributes.items():
            storage.set_trial_user_attr(trial_id, key, value)
        for key, value in ending.violations.items():
            storage.set_trial_system_attr(trial_id, _CONSTRAINT + key, value)
        values = ending.values
        if ending.state is TrialState.PRUNED:
            values = _last_reported(storage.get_trial(trial_id))
        return storage.set_trial_state_values(trial_id, ending.state, values)
    except UpdateFinishedTrialError:
        return _has_ended_so(storage.get_trial(trial_id), ending)


def _last_reported(trial: FrozenTrial) -> list[float] | None:
    """Return what Optuna takes for a pruned trial's value."""
    step = trial.last_step
    if step is None or not math.isfinite(trial.intermediate_values[step]):
        return None
    return [trial.intermediate_values[step]]


def _has_ended_so(trial: FrozenTrial, ending: Ending) -> bool:
    """Tell whether it was us who ended it: the server went away before it could answer."""
    if trial.state is not ending.state:
        return False
    if ending.values is not None and list(trial.values or ()) != list(ending.values):
        return False
    return all(trial.user_attrs.get(key) == value for key, value in ending.attributes.items())

"""A trial as the rest of the code sees it, and how it is read from an untrusted storage."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class TrialState(StrEnum):
    """The state of a trial.

    A requeued trial is an attempt that was lost with its controller; another trial, its
    successor, has its place and its directory. An invalid trial is a draw that is no possible
    configuration, or one more than `n_trials`. Neither counts as one of the trials.
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
    """A trial."""

    number: int  # In the study, from 0
    state: TrialState
    values: tuple[float, ...] | None = None  # The objectives' values in their order
    params: dict[str, Any] = field(default_factory=dict)  # What the sampler drew, by dimension
    overrides: tuple[str, ...] = ()  # What it changes: `key=value`
    folder: str = ""  # Below the study's, `trials/<number of its first attempt>`
    reason: str = ""  # Why it failed or was pruned
    metrics: dict[str, float] = field(default_factory=dict)  # Of its runs, averaged over seeds
    intermediate: dict[int, float] = field(default_factory=dict)  # Reports by rung, seed after seed
    violations: tuple[float, ...] = ()  # Of each constraint; zero or less: it is kept
    duration_s: float | None = None  # From its beginning to its end [s], None while it runs
    retry_of: int | None = None  # The attempt that it replaces
    owner: str = ""  # The controller that runs, or ran, it

    @property
    def used(self) -> dict[str, Any]:
        """The values that its runs used, by configuration key."""
        changed = dict(word.lstrip("+").split("=", 1) for word in self.overrides if "=" in word)
        found = {}
        for name, param in self.params.items():
            key = key_of(name)
            found[key] = _number_or_text(changed[key]) if key in changed else value_of(name, param)
        return found

    @property
    def is_feasible(self) -> bool:
        """Whether it keeps all constraints."""
        return all(violation <= 0 for violation in self.violations)


OWNER, KIND, REASON, METRICS = "owner", "kind", "reason", "figures"
OVERRIDES, FOLDER, RETRY_OF, ROOT = "overrides", "folder", "retry_of", "root"
ATTEMPT, WARM, TICKET, BEATS = "attempt", "warm_start", "ticket", "beats"
# Kinds of Optuna's failed trials; the last two never were one of the study's trials.
FAILED, REQUEUED, INVALID, SURPLUS = "failed", "requeued", "invalid", "surplus"
# A dead controller is no fault of its trials, but one that ends each of its controllers, e.g. by
# using up all memory, must end some time.
MOST_LOSSES = 10
_FOLDER_FORM = re.compile(r"trials/\d{4,12}")
_MOST_OVERRIDES = 1000
_TRANSFORMED = re.compile(r"(?P<how>log2|one_minus)\((?P<key>.+)\)")
_MOST_BITS = 62
_KINDS = {REQUEUED: TrialState.REQUEUED, INVALID: TrialState.INVALID, SURPLUS: TrialState.INVALID}


def key_of(name: str) -> str:
    """Return the configuration key of a parameter, e.g. of `log2(algo.hyperparams.n_steps)`."""
    match = _TRANSFORMED.fullmatch(name)
    return match["key"] if match else name


def value_of(name: str, param: Any) -> Any:
    """Return the value that a parameter stands for: of `log2(key)`, 11 stands for 2048."""
    match = _TRANSFORMED.fullmatch(name)
    if match is None or not isinstance(param, (int, float)) or isinstance(param, bool):
        return param
    if match["how"] == "one_minus":
        return 1 - param
    return 2 ** int(param) if 0 <= param <= _MOST_BITS else param


def _number_or_text(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def view_of(trial: FrozenTrial) -> TrialView:
    """Return a trial as the rest of the code sees it; what is not as we write it is left out."""
    state = state_of(trial)
    # A pruned trial's value in Optuna is only the last that it reported.
    values = trial.values if state is TrialState.DONE else None
    metrics = trial.user_attrs.get(METRICS)
    metrics = metrics.items() if isinstance(metrics, dict) else ()
    numbers = {_text(name): _number(number) for name, number in metrics}
    constraints, is_lost = trial.constraints, is_stale(trial)
    return TrialView(
        number=trial.number,
        state=state,
        values=None if values is None else tuple(float(value) for value in values),
        params={_text(name): _plain(value) for name, value in trial.params.items()},
        overrides=_overrides(trial.user_attrs.get(OVERRIDES)),
        folder=folder_of(trial),
        reason=lost_text(losses_of(trial)) if is_lost else _text(trial.user_attrs.get(REASON), 400),
        metrics={name: number for name, number in numbers.items() if math.isfinite(number)},
        intermediate={int(k): float(v) for k, v in sorted(trial.intermediate_values.items())},
        violations=tuple(_number(constraints[key]) for key in sorted(constraints)),
        duration_s=None if trial.duration is None else trial.duration.total_seconds(),
        retry_of=whole(trial, RETRY_OF),
        owner=_text(trial.user_attrs.get(OWNER), 400),
    )


def state_of(trial: FrozenTrial) -> TrialState:
    """Return the state of a trial."""
    if is_stale(trial):
        return TrialState.FAILED if losses_of(trial) >= MOST_LOSSES else TrialState.REQUEUED
    if trial.state.name == "FAIL":
        return _KINDS.get(str(trial.user_attrs.get(KIND)), TrialState.FAILED)
    return TrialState["DONE" if trial.state.name == "COMPLETE" else trial.state.name]


def is_stale(trial: FrozenTrial) -> bool:
    """Return whether Optuna has failed a trial because its heartbeats had stopped."""
    attributes = trial.user_attrs
    return trial.state.name == "FAIL" and BEATS in attributes and KIND not in attributes


def losses_of(trial: FrozenTrial) -> int:
    """Return how many attempts were lost before this one."""
    return whole(trial, ATTEMPT) or 0


def lost_text(losses: int) -> str:
    """Return why a trial failed whose controllers were lost so often before the last one."""
    times = f", {losses + 1} times" if losses >= MOST_LOSSES else ""
    return f"its controller was lost{times}"


def folder_of(trial: FrozenTrial) -> str:
    """Return a trial's directory below the study's: that of its first attempt."""
    folder = trial.user_attrs.get(FOLDER)
    if isinstance(folder, str) and _FOLDER_FORM.fullmatch(folder):
        return folder
    return f"trials/{trial.number:04d}"


def known_overrides(trial: FrozenTrial) -> tuple[str, ...] | None:
    """Return what a trial changes, None if that is still to be drawn."""
    if OVERRIDES in trial.user_attrs:
        return _overrides(trial.user_attrs[OVERRIDES])
    return () if trial.user_attrs.get(WARM) else None


def root_of(trial: FrozenTrial) -> int:
    """Return the number of a trial's first attempt."""
    root = whole(trial, ROOT)
    return trial.number if root is None else root


def whole(trial: FrozenTrial, name: str) -> int | None:
    """Return an attribute that is a whole number, None if it is none."""
    value = trial.user_attrs.get(name)
    return value if type(value) is int and value >= 0 else None


def successors(trials: Iterable[FrozenTrial]) -> dict[int, int]:
    """Return, for each attempt that was taken up again, the number of the first that did so."""
    found: dict[int, int] = {}
    for trial in trials:
        replaced = whole(trial, RETRY_OF)
        if replaced is not None and state_of(trial) is not TrialState.INVALID:
            found.setdefault(replaced, trial.number)
    return found


def places(trials: Sequence[FrozenTrial]) -> list[int]:
    """Return the numbers of those that count as one of the study's trials, first ones first.

    Another attempt has the place of the first one, whatever its own number; a lost attempt
    keeps it until its successor is there.
    """
    taken_up = successors(trials)
    counted = []
    for trial in trials:
        state = state_of(trial)
        is_replaced = state is TrialState.REQUEUED and trial.number in taken_up
        if state is not TrialState.INVALID and not is_replaced and not is_double(trial, trials):
            counted.append(trial)
    return [trial.number for trial in sorted(counted, key=lambda t: (root_of(t), t.number))]


def undisturbed_number(trial: FrozenTrial, trials: Iterable[FrozenTrial]) -> int:
    """Return the number that a trial would have if no attempt had been lost before it."""
    root = root_of(trial)

    def is_extra(other: FrozenTrial) -> bool:
        return RETRY_OF in other.user_attrs or other.user_attrs.get(KIND) == SURPLUS

    # Counted, not subtracted: a storage may be untrusted, and hold any root.
    return sum(not is_extra(other) for other in trials if other.number < root)


def is_double(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Return whether a waiting trial was queued a second time, by two controllers at once."""
    if trial.state.name != "WAITING":
        return False
    replaced = whole(trial, RETRY_OF)
    if replaced is not None:
        return successors(trials)[replaced] != trial.number
    valid = [other for other in trials if state_of(other) is not TrialState.INVALID]
    return trial.number in [other.number for other in valid if other.user_attrs.get(WARM)][1:]


def _text(value: object, longest: int = LONGEST_LINE) -> str:
    return printable(value, longest) if isinstance(value, str) else ""


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    return value if value is None or isinstance(value, (bool, int, float)) else _text(repr(value))


def _overrides(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return ()
    return tuple(_text(item) for item in value[:_MOST_OVERRIDES])


def _number(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return math.nan

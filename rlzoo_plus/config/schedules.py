"""Schedules written as names: `lin_3e-4`, `cos_3e-4_1e-5`, `exp_1e-3`, `const_0.2`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.given import given, is_given, is_path
from rlzoo_plus.registry import import_user_module, where_raised

_LONG = {"linear": "lin", "cosine": "cos", "exponential": "exp", "constant": "const"}
KINDS = {**{short: short for short in _LONG.values()}, **_LONG}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PATTERN = re.compile(rf"([A-Za-z]+)_({_NUMBER})(?:_({_NUMBER}))?")
_EXP_DEFAULT_RATIO = 0.01


@dataclass(frozen=True)
class ScheduleSpec:
    """A value that changes as training goes on."""

    kind: str  # `lin`, `cos`, `exp` or `const`
    start: float  # Value at the first step
    end: float  # Value at the last step

    def __call__(self, progress_remaining: float) -> float:
        """Return the value; `progress_remaining` falls from 1 to 0 in the course of a run.

        A last rollout that ends after the run's last step makes it negative: the value stays at its
        end, where the line would go on to a learning rate below 0.
        """
        done = min(1.0 - progress_remaining, 1.0)
        if self.kind == "const":
            return self.start
        if self.kind == "lin":
            return self.start + done * (self.end - self.start)
        if self.kind == "cos":
            return self.end + 0.5 * (self.start - self.end) * (1.0 + math.cos(math.pi * done))
        return self.start * float((self.end / self.start) ** done)


@dataclass(frozen=True)
class FunctionSchedule:
    """A function of the user that gives the value."""

    function: Callable[[float], Any]
    start: float  # Value at the first step
    end: float  # Value at the last step

    def __call__(self, progress_remaining: float) -> float:
        """Return the value; `progress_remaining` falls from 1 to 0 in the course of a run."""
        return float(self.function(progress_remaining))


def is_function(value: Any) -> bool:
    """Tell whether a value names a function of the user."""
    return is_given(value) or is_path(value)


def _function(name: str, key: str) -> FunctionSchedule:
    if is_given(name):
        found = given(name, key)
    else:
        module, _, attribute = name.rpartition(".")
        found = vars(import_user_module(key, module)).get(attribute)
    if not callable(found):
        raise ConfigError(f"{key}: {name} is not a function in its module.")
    try:
        return FunctionSchedule(found, float(found(1.0)), float(found(0.0)))
    # User code can raise anything.
    except Exception as error:
        raise ConfigError(f"{key}: {name}(progress_remaining): {where_raised(error)}.") from error


def parse_schedule(value: Any, key: str) -> ScheduleSpec | FunctionSchedule:
    """Read a number, the name of a schedule, or that of a function of the user.

    Args:
        value: A number, or `<kind>_<start>` or `<kind>_<start>_<end>`; without an end `lin` and
            `cos` go to 0, `exp` to a hundredth of the start.
        key: The configuration key, for the error's text.

    Raises:
        ConfigError: The text names no schedule, or an `exp` one that would cross zero.
    """
    schedule: ScheduleSpec | FunctionSchedule
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        schedule = ScheduleSpec("const", float(value), float(value))
    elif is_function(value):
        schedule = _function(value, key)
    else:
        match = _PATTERN.fullmatch(str(value))
        if match is None or (kind := KINDS.get(match.group(1).lower())) is None:
            raise ConfigError(_describe(value, key))
        start = float(match.group(2))
        default_end = {"const": start, "exp": start * _EXP_DEFAULT_RATIO}.get(kind, 0.0)
        schedule = ScheduleSpec(kind, start, float(match.group(3) or default_end))
        if kind == "exp" and not (start > 0 and schedule.end > 0):
            instead = f"Use lin_{start:g} to reach 0."
            raise ConfigError(f"{key}={value}: needs a start and an end above 0. {instead}")
    if not all(0 <= number < math.inf for number in (schedule.start, schedule.end)):
        raise ConfigError(f"{key}={value}: must be a finite number, and not negative.")
    return schedule


def _describe(value: Any, key: str) -> str:
    prefix = str(value).split("_")[0]
    near = closest(prefix, KINDS)
    is_other = near is not None and near != prefix
    hint = f" Did you mean {str(value).replace(prefix, str(near), 1)!r}?" if is_other else ""
    return (
        f"{key}={value} is neither a number nor a schedule.{hint} Schedules: lin_3e-4 (to 0), "
        "lin_3e-4_1e-5 (to an end value), cos_..., exp_..., const_... ."
    )

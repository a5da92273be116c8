"""A run's numbers over its steps: evaluations and logged metrics, read from its records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.records import iter_records
from rlzoo_plus.artifacts.result import recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir

EVALUATION_RETURN = "mean_return"
TRAINING_RETURN = "rollout/ep_rew_mean"
STAGE = "curriculum/stage"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a policy."""

    step: int  # Environment steps taken before it
    mean_return: float  # Mean over episodes
    std_return: float  # Standard deviation over episodes


@dataclass(frozen=True)
class Series:
    """Values over steps."""

    steps: np.ndarray  # Environment steps, rising, shape (n,)
    values: np.ndarray  # One value a step, shape (n,)

    def __len__(self) -> int:
        return len(self.steps)


def finite(value: Any) -> float | None:
    """Return a finite number as a float, and None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        # A whole number can have more digits than a float.
        return None


def load_evaluations(run: RunDir) -> list[Evaluation]:
    """Return the evaluations of a run by rising step; invalid records are left out.

    Of several at one step, as a resumed run may leave, the last one counts.
    """
    by_step = {}
    for record in iter_records(run.evaluations_file):
        step, mean = finite(record.get("step")), finite(record.get("mean_return"))
        if step is not None and mean is not None:
            std = finite(record.get("std_return"))
            spread = _std(record.get("returns")) if std is None else std
            by_step[int(step)] = Evaluation(int(step), mean, spread)
    return [by_step[step] for step in sorted(by_step)]


def _std(returns: Any) -> float:
    """Return the standard deviation of a few numbers; NumPy takes twenty times as long."""
    known = map(finite, returns if isinstance(returns, list) else [])
    numbers = [number for number in known if number is not None] or [0.0]
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((x - mean) * (x - mean) for x in numbers) / len(numbers))


def evaluation_rows(run: RunDir) -> list[dict[str, Any]]:
    """Return the records of a run's evaluations by rising step; of several at one, the last."""
    records = (r for r in iter_records(run.evaluations_file) if finite(r.get("step")) is not None)
    by_step = {record["step"]: record for record in records}
    return [by_step[step] for step in sorted(by_step)]


def metric_rows(run: RunDir) -> list[dict[str, Any]]:
    """Return a row for each step at which something was logged: `step`, and value by metric."""
    rows: dict[float, dict[str, Any]] = {}
    for record in iter_records(run.metrics_file):
        step: Any = record.get("step")
        key = record.get("key")
        if finite(step) is not None and isinstance(key, str):
            rows.setdefault(step, {"step": step})[key] = record.get("value")
    return [rows[step] for step in sorted(rows)]


def load_series(run: RunDir, key: str) -> Series:
    """Return a metric of a run's evaluations, e.g. `success_rate`, or of its metrics file."""
    numbers = ((r.get("step"), recorded_numbers(r)) for r in iter_records(run.evaluations_file))
    series = _series((step, found.get(key)) for step, found in numbers)
    if len(series):
        return series
    records = iter_records(run.metrics_file)
    return _series((r.get("step"), r.get("value")) for r in records if r.get("key") == key)


def metric_keys(run: RunDir) -> set[str]:
    """Return the names that `load_series` finds values for."""
    records = iter_records(run.metrics_file)
    keys = {str(r["key"]) for r in records if "key" in r and finite(r.get("value")) is not None}
    for record in iter_records(run.evaluations_file):
        keys |= {k for k, v in recorded_numbers(record).items() if finite(v) is not None}
    return keys


def _series(pairs: Iterable[tuple[Any, Any]]) -> Series:
    numbers = ((finite(step), finite(value)) for step, value in pairs)
    by_step = {int(s): value for s, value in numbers if s is not None and value is not None}
    steps = sorted(by_step)
    return Series(np.array(steps, dtype=np.float64), np.array([by_step[s] for s in steps]))

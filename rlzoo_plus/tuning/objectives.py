"""The metrics of a run that may be objectives of a study, and the constraints on them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.records import iter_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import ConfigError, unknown_name

RUNGS = 20
_LATE = 3
# Metrics that are known while a run goes on, and their keys in an evaluation.
FOLLOWED = {
    "late_return": "mean_return",
    "final_return": "mean_return",
    "best_return": "mean_return",
    "mean_return": "mean_return",
    "success_rate": "success_rate",
}
METRICS = (*FOLLOWED, "steps_per_s", "training_time_s")


def run_metrics(run: RunDir) -> dict[str, float]:
    """Return the metrics of a finished run; what it has not measured is left out.

    Returns:
        late_return: Mean return of the last three evaluations.
        final_return, best_return, mean_return: Of the last, the best and all evaluations.
        success_rate: Of the last three evaluations, where the task reports success.
        steps_per_s: Environment steps a second in the learning loop, evaluations included.
        training_time_s: Seconds in that loop.
    """
    records = _by_step(run).values()
    returns, success = (
        [value for record in records if (value := followed_value(record, name)) is not None]
        for name in ("mean_return", "success_rate")
    )
    metrics: dict[str, float] = {}
    if returns:
        metrics |= {
            "late_return": _mean(returns[-_LATE:]),
            "final_return": returns[-1],
            "best_return": max(returns),
            "mean_return": _mean(returns),
        }
    if success:
        metrics["success_rate"] = _mean(success[-_LATE:])
    result = run.read_result()
    seconds, steps = finite(result.get("training_time_s")), finite(result.get("num_timesteps"))
    if seconds:
        metrics |= {"training_time_s": seconds, "steps_per_s": (steps or 0.0) / seconds}
    return metrics


def mean_metrics(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average the metrics that all seeds of a trial have."""
    names = [name for name in METRICS if seeds and all(name in metrics for metrics in seeds)]
    return {name: _mean([metrics[name] for metrics in seeds]) for name in names}


def rung_of(step: int, n_timesteps: int) -> int:
    """Return the rung of a step: twentieths of a run."""
    return min(max(RUNGS * step // n_timesteps, 1), RUNGS)


def rung_values(run: RunDir, n_timesteps: int, name: str) -> dict[int, float]:
    """Return a metric of a run's evaluations at each rung; of several the first."""
    values: dict[int, float] = {}
    for step, record in _by_step(run).items():
        value = followed_value(record, name)
        if value is not None:
            values.setdefault(rung_of(step, n_timesteps), value)
    return values


def followed_value(record: Mapping[str, Any], name: str) -> float | None:
    """Return a metric of an evaluation; NaN if the policy has diverged."""
    value = record.get(FOLLOWED[name])
    if isinstance(value, (int, float)) and type(value) is not bool:
        return float(value)
    # Records have null where there was no number; not every task reports success.
    return math.nan if FOLLOWED[name] == "mean_return" else None


def _by_step(run: RunDir) -> dict[int, dict[str, Any]]:
    """Return a run's evaluations without that of the untrained policy, in their order."""
    records = {}
    for record in iter_records(run.evaluations_file):
        step = record.get("step")
        if type(step) is int and step > 0:
            records[step] = record
    return dict(sorted(records.items()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_FORM = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric, in its unit."""

    metric: str
    is_lower: bool  # True for `>=`, False for `<=`
    bound: float
    key: str  # Its name in the storage; sorted, in the order of the settings

    def violation(self, metrics: Mapping[str, float]) -> float:
        """Return how much it is broken, in the metric's unit; zero or less: it is kept."""
        value = metrics.get(self.metric, math.nan)
        if not math.isfinite(value):
            # A metric that was not measured breaks it; samplers cannot use infinities.
            return max(abs(self.bound), 1.0)
        return self.bound - value if self.is_lower else value - self.bound


def parse_constraints(texts: Sequence[str]) -> list[Constraint]:
    """Read constraints; a ConfigError says which text is none, or has an unknown metric."""
    constraints = []
    for place, text in enumerate(texts):
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"hpo.constraints: {text!r} is no constraint. Write a metric, >= or <=, and a "
                'number, for example "steps_per_s >= 1000".'
            )
        metric, sign, number = match.groups()
        if metric not in METRICS:
            raise ConfigError(f"hpo.constraints: {unknown_name('metric', metric, METRICS)}")
        key = f"{place:02d} {metric} {sign} {number}"
        constraints.append(Constraint(metric, sign == ">=", float(number), key))
    return constraints

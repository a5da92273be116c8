"""How far a run is, from the ends of its files: for tables, and for the record of its lease."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.records import parse_record, read_records
from rlzoo_plus.artifacts.result import EVALUATION_NUMBERS, recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_plain_tail
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig

# What a lease may carry.
MOST_EVALUATIONS, LARGEST_EVALUATIONS = 200, 48_000


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    steps: int = 0  # Environment steps taken, as far as recorded
    rate: float | None = None  # Environment steps per second recently, None if not known
    mean_return: float | None = None  # Mean return of the last evaluation, None if there is none

    def left_s(self, n_timesteps: int) -> float | None:
        """Return the time that the rest will take [s], None if that is not known."""
        return max(n_timesteps - self.steps, 0) / self.rate if self.rate else None


def read_progress(run: RunDir) -> Progress:
    """Return how far a run is; only the ends of its files are read."""
    since = finite(run.read_status().get("updated_at")) or 0.0
    # When each step was recorded.
    times: dict[int, float] = {}
    for record in _last_records(run.metrics_file):
        when, step = finite(record.get("ts")), finite(record.get("step"))
        if when is not None and step is not None:
            times[int(step)] = when
    evaluation = (_last_records(run.evaluations_file) or [{}])[-1]
    steps = max([0, int(finite(evaluation.get("step")) or 0), *times])
    recent = [(when, step) for step, when in sorted(times.items()) if when >= since]
    rate = None
    if len(recent) > 1 and (seconds := recent[-1][0] - recent[0][0]) > 0:
        rate = (recent[-1][1] - recent[0][1]) / seconds
    return Progress(steps, rate, finite(evaluation.get("mean_return")))


def _last_records(path: Path) -> list[dict[str, Any]]:
    lines = [line.decode("utf-8", "replace") for line in read_plain_tail(path, 2**15)]
    # The last line may be torn; it is no record then.
    return [record for line in lines if (record := parse_record(line)) is not None]


def read_report(run: RunDir) -> dict[str, Any]:
    """Return what a run's lease says about it: plain numbers, a few hundred bytes.

    Returns:
        `steps`, `rate` [steps/s] and `evaluation`, the last one; of a finished run also `best`,
        `final`, `training_time_s` [s] and `exact`. Evaluations are numbers by name, `step` among
        them.
    """
    progress, result = read_progress(run), run.read_result()
    last = (_last_records(run.evaluations_file) or [{}])[-1]
    report = {"steps": progress.steps, "rate": progress.rate, "evaluation": numbers_of(last)}
    if result:
        report["steps"] = int(finite(result.get("num_timesteps")) or progress.steps)
        report |= {name: numbers_of(result.get(name)) for name in ("best", "final")}
        report |= {name: result.get(name) for name in ("training_time_s", "exact")}
    return report


def read_evaluations(run: RunDir) -> list[dict[str, float | None]]:
    """Return the numbers of the newest evaluations, the oldest of them first; None if not finite.

    There are at most `MOST_EVALUATIONS`, and `LARGEST_EVALUATIONS` bytes of them as JSON.
    """
    newest: list[dict[str, float | None]] = []
    size = 0
    for record in reversed(read_records(run.evaluations_file)[-MOST_EVALUATIONS:]):
        values = {**recorded_numbers(record), "step": record.get("step")}
        numbers = {name: finite(value) for name, value in values.items()}
        size += len(json.dumps(numbers)) + 2
        if size > LARGEST_EVALUATIONS:
            break
        newest.insert(0, numbers)
    return newest


def about_run(config: RunConfig) -> dict[str, Any]:
    """Return what a run's lease says about its configuration, so that runs are found by it."""
    return {
        "env": str(config.env.name),
        "algo": config.algo.name,
        "seed": config.seed,
        "n_timesteps": config.n_timesteps,
        "config_hash": config_hash(config),
    }


def numbers_of(record: Any) -> dict[str, float]:
    """Return the finite numbers of an untrusted evaluation record that every record has."""
    if not isinstance(record, Mapping):
        return {}
    found = {name: finite(record.get(name)) for name in ("step", *EVALUATION_NUMBERS)}
    return {name: value for name, value in found.items() if value is not None}

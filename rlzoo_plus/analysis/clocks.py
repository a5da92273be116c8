"""Where environment steps of a run lie on other axes: finished episodes, hours of training."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.analysis.style import STEPS_LABEL
from rlzoo_plus.artifacts.records import iter_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_plain_lines

Axis = Literal["steps", "episodes", "hours"]
AXIS_LABELS: dict[str, str] = {
    "steps": STEPS_LABEL,
    "episodes": "training episodes",
    "hours": "hours of training",
}


def positions(run: RunDir, steps: np.ndarray, axis: Axis) -> np.ndarray:
    """Return where some steps of a run lie on an axis, shape (n,); NaN where that is not known."""
    if axis == "steps":
        return steps
    if axis == "episodes":
        ends = _episode_ends(sorted([*run.monitor.glob("*.csv"), *run.path.glob("*.monitor.csv")]))
        if not len(ends):
            return np.full(len(steps), np.nan)
        return np.searchsorted(ends, steps, side="right").astype(np.float64)
    return _hours(run, steps)


def _episode_ends(files: Sequence[Path]) -> np.ndarray:
    """Return the steps at which episodes of environments that step together ended, rising."""
    ends = [np.zeros(0)]
    for file in files:
        ends.append(np.cumsum([length for _, length, _ in _monitor_rows(file)]) * len(files))
    return np.sort(np.concatenate(ends))


def _monitor_rows(file: Path) -> list[tuple[float, float, float]]:
    """Return return, length and time [s] of each episode in a monitor's CSV."""
    rows = []
    try:
        lines = (line.decode("utf-8", "replace") for line in read_plain_lines(file))
        for record in csv.DictReader(line for line in lines if not line.startswith("#")):
            # A line may be torn.
            with suppress(KeyError, TypeError, ValueError):
                total, length, taken_s = (float(record[key] or "") for key in ("r", "l", "t"))
                if math.isfinite(total + length + taken_s):
                    rows.append((total, length, taken_s))
    except (OSError, ValueError, csv.Error):
        pass
    return rows


def _hours(run: RunDir, steps: np.ndarray) -> np.ndarray:
    """Return hours of training; the time between an interruption and its resume does not count."""
    times: dict[float, float] = {}
    for record in iter_records(run.metrics_file):
        step, when = finite(record.get("step")), finite(record.get("ts"))
        if step is not None and when is not None:
            times.setdefault(step, when)
    if not times:
        return _hours_of_monitor(run, steps)
    known = np.array(sorted(times))
    whens = np.array([times[step] for step in known])
    started = finite(run.read_status().get("started_at"))
    gaps = np.maximum(np.diff(whens, prepend=whens[0]), 0.0)
    if started is not None and started <= whens[0]:
        gaps[0] = whens[0] - started
    resumed = run.read_result().get("resumed_at")
    for step in map(finite, resumed if isinstance(resumed, list) else []):
        if step is not None and (at := int(np.searchsorted(known, step, side="right"))) < len(gaps):
            gaps[at] = float(np.median(gaps))
    hours = np.cumsum(gaps) / 3600
    return np.asarray(np.interp(steps, known, hours, left=np.nan, right=float(hours[-1])))


def _hours_of_monitor(run: RunDir, steps: np.ndarray) -> np.ndarray:
    files = sorted(run.path.glob("*.monitor.csv"))
    rows = [(length * len(files), t) for file in files[:1] for _, length, t in _monitor_rows(file)]
    if not rows:
        return np.full(len(steps), np.nan)
    taken, seconds = np.array(rows).T
    return np.asarray(np.interp(steps, np.cumsum(taken), seconds / 3600))

"""Metrics of runs as plain data for curves: read by need, thinned out, kept in memory."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.analysis.clocks import positions
from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.records import parse_record
from rlzoo_plus.artifacts.result import recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_plain_lines, read_plain_part, read_plain_tail
from rlzoo_plus.dashboard.source import Source

MEAN_RETURN = "mean_return"
AXES = ("hours", "episodes")
_MOST_POINTS, _POINTS_OF_A_CLOCK = 300, 100
# Names of metrics are looked for at both ends of a file.
_END_BYTES = 2**16
# Of runs whose metrics are listed: one for each algorithm and environment.
_MOST_ASKED = 40

Stamps = tuple[tuple[int, int], ...]
Numbers = list[list[float]]


def metrics_data(source: Source) -> list[str]:
    """Return the names of metrics there are, the evaluations' first."""
    one: dict[tuple[str, str], str] = {}
    for run_id, run in source.runs().items():
        if run.evaluations or run.summary.steps:
            one.setdefault((run.algo, run.env), run_id)
    names: set[str] = set()
    for run_id in list(one.values())[:_MOST_ASKED]:
        names |= set(logged_names(source.directory(run_id)))
    return [MEAN_RETURN, *sorted(names - {MEAN_RETURN}, key=lambda name: ("/" in name, name))]


def series_data(source: Source, run_ids: Iterable[str], metric: str) -> dict[str, Numbers]:
    """Return steps and values of a metric by run; a run without it has no entry."""
    found = {}
    for run_id in run_ids:
        numbers = series_of(source.entry(run_id), source.directory(run_id), metric)
        if numbers[0]:
            found[run_id] = numbers
    return found


def clock_data(source: Source, run_ids: Iterable[str], axis: str) -> dict[str, Numbers]:
    """Return steps and where they lie on another axis, `hours` or `episodes`, by run."""
    found = {}
    for run_id in run_ids:
        run = source.directory(run_id)
        numbers = _clock(run.path, axis, source.entry(run_id).summary.steps or 0, _stamps(run))
        if numbers[0]:
            found[run_id] = numbers
    return found


def series_of(entry: RunEntry, run: RunDir, metric: str) -> Numbers:
    """Return steps and values of one run's metric, at most some hundred."""
    if metric == MEAN_RETURN:
        pairs = {each.step: each.mean_return for each in entry.evaluations}
        return _thinned(pairs)
    return _read(run.path, metric, _stamps(run))


def logged_names(run: RunDir) -> list[str]:
    """Return the names of a run's metrics: those at both ends of its records."""
    names = set()
    for file in (run.metrics_file, run.evaluations_file):
        lines = read_plain_tail(file, _END_BYTES)
        with contextlib.suppress(OSError, ValueError):
            lines += read_plain_part(file, 0, _END_BYTES).split(b"\n")[:-1]
        for line in lines:
            record = parse_record(line.decode("utf-8", "replace"))
            if record is None:
                continue
            numbers = _numbers_in(record)
            names |= {str(name) for name, value in numbers.items() if finite(value) is not None}
    return sorted(names)


def _numbers_in(record: dict[str, Any]) -> dict[str, Any]:
    return {record["key"]: record.get("value")} if "key" in record else recorded_numbers(record)


def _stamps(run: RunDir) -> Stamps:
    found = []
    for file in (run.metrics_file, run.evaluations_file, run.result_file):
        try:
            about = os.lstat(file)
            found.append((about.st_mtime_ns, about.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


@functools.lru_cache(maxsize=20_000)
def _read(path: Path, metric: str, _: Stamps) -> Numbers:
    run, pairs = RunDir(path), dict[int, float]()
    # Most lines are of other metrics: those are not parsed.
    mark = json.dumps(metric).encode()
    for file in (run.evaluations_file, run.metrics_file):
        with contextlib.suppress(OSError, ValueError):
            for line in read_plain_lines(file):
                record = parse_record(line.decode("utf-8", "replace")) if mark in line else None
                if record is not None:
                    step, value = finite(record.get("step")), _numbers_in(record).get(metric)
                    number = finite(value)
                    if step is not None and number is not None:
                        pairs[int(step)] = number
        if pairs:
            # As in plots, what evaluations measured comes before what training logged.
            break
    return _thinned(pairs)


@functools.lru_cache(maxsize=5_000)
def _clock(path: Path, axis: str, last: int, _: Stamps) -> Numbers:
    steps = np.unique(np.linspace(0, last, _POINTS_OF_A_CLOCK).round())
    places = positions(RunDir(path), steps, "hours" if axis == "hours" else "episodes")
    known = np.isfinite(places)
    return [steps[known].tolist(), [float(f"{place:.6g}") for place in places[known]]]


def _thinned(pairs: dict[int, float]) -> Numbers:
    """Return steps and values; of many, the lowest and the highest in each of equal parts."""
    steps = np.array(sorted(pairs))
    values = np.array([pairs[step] for step in steps.tolist()], dtype=np.float64)
    if len(steps) > _MOST_POINTS:
        kept = {0, len(steps) - 1}
        for part in np.array_split(np.arange(len(steps)), (_MOST_POINTS - 2) // 2):
            kept |= {int(part[values[part].argmin()]), int(part[values[part].argmax()])}
        order = sorted(kept)
        steps, values = steps[order], values[order]
    return [steps.tolist(), [float(f"{value:.6g}") for value in values]]

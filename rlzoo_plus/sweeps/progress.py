"""How far a job is, read from what its run has written."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_plain_tail

_TAIL_BYTES = 2**15


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        steps: Environment steps taken, as far as it is written down.
        rate: Environment steps a second lately, None if not known.
        mean_return: Of the last evaluation, None if there is none.
    """

    steps: int = 0
    rate: float | None = None
    mean_return: float | None = None

    def left_s(self, n_timesteps: int) -> float | None:
        """Return the time that the rest will take [s], None if that is not known."""
        return max(n_timesteps - self.steps, 0) / self.rate if self.rate else None


def read_progress(run: RunDir) -> Progress:
    """Return how far a run is; only the ends of its files are read."""
    since = finite(run.read_status().get("updated_at")) or 0.0
    marks = _marks(_last_records(run.metrics_file))
    evaluations = _last_records(run.evaluations_file)
    mean = finite(evaluations[-1].get("mean_return")) if evaluations else None
    steps = [step for _, step in marks[-1:]]
    evaluated = finite(evaluations[-1].get("step")) if evaluations else None
    steps += [] if evaluated is None else [int(evaluated)]
    recent = [mark for mark in marks if mark[0] >= since]
    return Progress(max(steps, default=0), _rate(recent), mean)


def _marks(records: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Return time and step of each moment at which something was recorded."""
    marks: dict[int, float] = {}
    for record in records:
        when, step = finite(record.get("ts")), finite(record.get("step"))
        if when is not None and step is not None:
            marks[int(step)] = when
    return [(when, step) for step, when in sorted(marks.items())]


def _rate(marks: list[tuple[float, int]]) -> float | None:
    if len(marks) < 2:
        return None
    seconds = marks[-1][0] - marks[0][0]
    return (marks[-1][1] - marks[0][1]) / seconds if seconds > 0 else None


def _last_records(path: Path) -> list[dict[str, Any]]:
    records = []
    # The last line may be the beginning of one; it is no record then.
    for line in read_plain_tail(path, _TAIL_BYTES):
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            records += [record] if isinstance(record, dict) else []
    return records

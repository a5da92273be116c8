"""Where training metrics go: metrics.jsonl, TensorBoard, a tracker, and the terminal on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import (
    HumanOutputFormat,
    KVWriter,
    Logger,
)

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks.outputs import SafeOutput, make_tensorboard
from rlzoo_plus.config.schema import LogConfig
from rlzoo_plus.tracking import Tracker


def make_logger(config: LogConfig, run_dir: RunDir, tracker: Tracker | None) -> Logger:
    """Return the logger that a Stable-Baselines3 algorithm writes its metrics to."""
    metrics = JsonLinesWriter(run_dir.metrics_file)
    outputs: list[KVWriter] = [SafeOutput(metrics, run_dir.metrics_file.name)]
    tensorboard = make_tensorboard(run_dir) if config.tensorboard else None
    if tensorboard is not None:
        outputs.append(tensorboard)
    if tracker is not None:
        outputs.append(TrackerWriter(tracker))
    if config.sb3:
        outputs.append(SafeOutput(HumanOutputFormat(sys.stdout), "log.sb3=true"))
    return Logger(folder=str(run_dir.path), output_formats=outputs)


class JsonLinesWriter(KVWriter):
    """Appends one record for each value: ts, step, key, value, tags."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Append the values of one step."""
        now = time.time()
        append_records(
            self.path,
            [
                {"ts": now, "step": step, "key": key, "value": value, "tags": {}}
                for key, value in _numbers(key_values).items()
            ],
        )

    def close(self) -> None:
        """Nothing stays open between writes."""


class TrackerWriter(KVWriter):
    """Passes the values on to a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Pass on the values of one step."""
        self.tracker.log(_numbers(key_values), step)

    def close(self) -> None:
        """The tracker is closed by whoever started it."""


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in sorted(values.items())
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    }

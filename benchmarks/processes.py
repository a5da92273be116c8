"""Timing whole processes in turn, so that a busy machine slows all of them alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Run a command in an empty folder and return its wall-clock time [s]."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            command,
            cwd=folder,
            env=variables,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - started


def print_ratios(name: str, ratios: list[float]) -> None:
    """Print the median of the ratios of all rounds, with the lowest and the highest."""
    low, high = min(ratios), max(ratios)
    print(f"{name}: median {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})", flush=True)

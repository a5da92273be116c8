"""Runs that benchmarks train through the command line, once, and let play."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


def call(*arguments: str) -> str:
    """Run a command of rlzoo-plus with one torch thread and return what it printed.

    Raises:
        SystemExit: It failed; the text has what it said.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlzoo_plus", *arguments]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def train_seeds(
    folder: Path, seeds: Sequence[int], workers: int, overrides: Sequence[str]
) -> list[Path]:
    """Train a sweep over seeds, as far as it is missing, and return the run directories.

    Args:
        folder: Where the sweep is kept; one configuration a folder.
        seeds: The seeds, also the order of the result.
        workers: Runs at once, one thread each.
        overrides: The configuration.
    """
    folder = folder.resolve()
    words = [*overrides, f"seed={','.join(map(str, seeds))}", f"sweep={folder}"]
    call("train", "-m", *words, f"infra.workers={workers}", "num_threads=1", "log.progress=false")
    runs = {
        config_of(path.parent)["seed"]: path.parent
        for path in folder.rglob("config.yaml")
        if (path.parent / "result.json").is_file()
    }
    return [runs[seed] for seed in seeds]


def config_of(run: Path) -> dict[str, Any]:
    """Return the configuration of a run."""
    config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    return config


def result_of(run: Path) -> dict[str, Any]:
    """Return the result of a finished run."""
    result: dict[str, Any] = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return result


def curve_of(run: Path) -> list[tuple[int, float]]:
    """Return step and mean return of every evaluation."""
    lines = (run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    return [(point["step"], round(point["mean_return"], 3)) for point in map(json.loads, lines)]


def evaluate(run: Path, which: str, episodes: int, *overrides: str) -> dict[str, Any]:
    """Let a policy play held-out episodes; see `rlzoo-plus evaluate --json`."""
    arguments = (str(run), "--which", which, "--episodes", str(episodes), "--json", *overrides)
    played: dict[str, Any] = json.loads(call("evaluate", *arguments))
    return played

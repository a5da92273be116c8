"""Hashes of each part of a finished run, without what depends on the clock."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.training.resume.env_state import PREFIX

_DIGITS = 16
# Depends on the clock, or on where a run was interrupted.
_PASSING = {"clock", "exactness", "t", "ts", "training_time_s", "resumed_at"}
_PASSING_METRICS = ("time/fps", "time/time_elapsed")


def run_digests(run_dir: RunDir) -> dict[str, str]:
    """Return a hash of each part of a finished run, 16 hexadecimal digits, by its name.

    Raises:
        FileNotFoundError: It has no whole checkpoint.
        DamagedFolderError: A bundle is damaged.
    """
    checkpoint = run_dir.checkpoints().load_newest()
    if checkpoint is None:
        raise FileNotFoundError(f"{run_dir.path} has no whole checkpoint")
    state = checkpoint.state
    agent = state["agent"]
    rows = {name: asdict(index) for name, index in checkpoint.chunks.items()}
    long_episodes = {name: rows.pop(name) for name in list(rows) if name.startswith(PREFIX)}
    networks: dict[str, Any] = {}
    optimizers: dict[str, Any] = {}
    for name, value in agent["parameters"].items():
        (optimizers if "optimizer" in name else networks)[name] = value
    parts: dict[str, Any] = {
        "networks and targets": [networks, agent["tensors"]],
        "optimizers": optimizers,
        "counters, last observations": [checkpoint.step, agent["attributes"]],
        "random generators": agent["random"],
        "exploration noise": agent["noise"],
        "environments, statistics": [state["envs"], long_episodes],
        "pending log values": agent["logger"],
        "callbacks": state["callbacks"],
    }
    if "ranks" in state:
        parts["other ranks"] = state["ranks"]
    if state["buffer"] is not None:
        parts["replay buffer"] = [state["buffer"], rows]
    parts |= _records(run_dir)
    for name, path in (("best bundle", run_dir.best), ("final bundle", run_dir.final)):
        if path.is_dir():
            bundle = load_bundle(path)
            parts[name] = [bundle.weights, bundle.normalization, bundle.about]
    return {name: digest(value) for name, value in parts.items()}


def digest(value: Any) -> str:
    """Return a hash of nested data with arrays, without what depends on the clock."""
    return hashlib.sha256(b"".join(pack(_lasting(value)).values())).hexdigest()[:_DIGITS]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _PASSING}
    return [_lasting(item) for item in value] if isinstance(value, (list, tuple)) else value


def _records(run_dir: RunDir) -> dict[str, Any]:
    metrics = [r for r in read_records(run_dir.metrics_file) if r["key"] not in _PASSING_METRICS]
    result = run_dir.read_result()
    kept = ("num_timesteps", "best", "final", "solved", "reason", "config_hash")
    rows = {}
    for file in sorted(run_dir.monitor.glob("*.csv")):
        # The first line and the last column depend on the clock.
        lines = file.read_text(encoding="utf-8").splitlines()[1:]
        rows[file.name] = [line.rsplit(",", 1)[0] for line in lines]
    return {
        "metrics.jsonl": metrics,
        "evaluations.jsonl": read_records(run_dir.evaluations_file),
        "monitor rows": rows,
        "TensorBoard scalars": _scalars(run_dir),
        "result.json": {key: result.get(key) for key in kept},
    }


def _scalars(run_dir: RunDir) -> dict[str, list[tuple[int, float]]]:
    scalars: dict[str, list[tuple[int, float]]] = {}
    # One file for each process that trained.
    for file in run_dir.tensorboard.glob("events.out.*"):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if tag not in _PASSING_METRICS:
                values = [(event.step, event.value) for event in events.Scalars(tag)]
                scalars.setdefault(tag, []).extend(values)
    return {tag: sorted(scalars[tag]) for tag in sorted(scalars)}

"""The keyword arguments of `train`, `compose` and `make`, for editors that complete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

Schedule = float | str | Callable[[float], float]


class Overrides(TypedDict, total=False):
    """Keys of a configuration; `rz.train(**overrides)`, with `overrides: rz.Overrides = {...}`.

    A section takes a dictionary of its keys; see docs/configuration.md.
    """

    env: Any  # name, id, class, function or instance
    algo: Any  # name or class
    network: str | Mapping[str, Any]
    infra: str | Mapping[str, Any]
    hpo: str | None
    tracker: str | Mapping[str, Any] | None
    packages: Sequence[str]
    n_timesteps: int
    seed: int
    n_envs: int
    vec_env: Any
    normalize: bool | Mapping[str, Any] | None
    cost: Mapping[str, Any] | None
    curriculum: Sequence[Mapping[str, Any]]
    distributed: int
    asynchronous: bool | int
    encryption: str | None
    data: str | Mapping[str, Any]
    teacher: str | Mapping[str, Any]
    reward_model: str | Mapping[str, Any]
    exploration: str | Mapping[str, Any] | None
    device: str
    num_threads: int | str
    record_updates: bool
    fast: bool | str
    profile: bool | str
    run_dir: str | None
    sweep: str | None
    store: str | None
    resume: str
    restart: bool
    init_from: str | None
    init: Mapping[str, Any]
    freeze: Sequence[str]
    eval: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    stop: Mapping[str, Any]
    log: Mapping[str, Any]
    report: Mapping[str, Any]
    export: Mapping[str, Any]
    callbacks: Any
    # As in Stable-Baselines3.
    total_timesteps: int
    callback: Any
    policy: Any
    policy_kwargs: Mapping[str, Any]
    learning_rate: Schedule
    gamma: float
    batch_size: int
    n_steps: int
    buffer_size: int
    action_noise: Any

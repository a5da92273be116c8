"""Checks of an algorithm's hyperparameters that need neither torch nor an environment."""

from __future__ import annotations

from typing import Any

from rlzoo_plus.config.catalog import ACTION_NOISES, REPLAY_BUFFERS, AlgorithmSpec, Family
from rlzoo_plus.config.limits import limit_of
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import AlgoConfig
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments, fit_type
from rlzoo_plus.errors import ConfigError, unknown_name

# Schedules that stop making sense where they reach 0 at once.
_POSITIVE_SCHEDULES = ("clip_range_vf", "delta_std")


def fit_hyperparams(algo: AlgoConfig, spec: AlgorithmSpec) -> AlgoConfig:
    """Check names and types against the algorithm's constructor; return fitted values.

    Raises:
        ConfigError: An argument is unknown, set elsewhere, or of the wrong type.
    """
    for key in algo.hyperparams:
        if key in MANAGED:
            raise ConfigError(f"algo.hyperparams.{key} is not set here: {MANAGED[key]}.")
    known = constructor_arguments(spec.entry_point)
    if known is None:
        return algo
    fitted = {}
    for key, value in algo.hyperparams.items():
        if key not in known:
            settable = known.keys() - MANAGED.keys()
            listed_by = f"rlzoo-plus train algo={spec.name} --cfg job"
            raise ConfigError(
                unknown_name(f"hyperparameter of {spec.name}", key, settable, listed_by)
            )
        try:
            fitted[key] = fit_type(value, known[key])
        except ValueError as error:
            raise ConfigError(f"algo.hyperparams.{key}={value}: {error}.") from None
    if all(fitted[key] is value for key, value in algo.hyperparams.items()):
        return algo  # jobs of a sweep may share it
    return algo.model_copy(update={"hyperparams": fitted})


def check_hyperparams(algo: AlgoConfig, spec: AlgorithmSpec, n_envs: int) -> list[str]:
    """Check schedules, sizes and what goes together; return warnings.

    Raises:
        ConfigError: A hyperparameter cannot work.
    """
    _check_schedules(algo.hyperparams, spec)
    for key, value in algo.hyperparams.items():
        limit = limit_of(key, spec.entry_point)
        if limit is not None and not limit.allows(value):
            raise ConfigError(f"algo.hyperparams.{key}={value}: needs {limit.rule}.")
    _check_off_policy_parts(algo, spec)
    if spec.family is Family.ON_POLICY:
        return _check_batches(algo.hyperparams, spec, n_envs)
    top, directions = algo.hyperparams.get("n_top"), algo.hyperparams.get("n_delta")
    if top is not None and directions is not None and top > directions:
        raise ConfigError(
            f"algo.hyperparams.n_top={top} is above n_delta={directions}. Set it to at most "
            f"{directions}, or to null for all."
        )
    if spec.family is Family.OFF_POLICY:
        _check_train_freq(algo.hyperparams, n_envs)
    return []


def rollout_steps(algo: AlgoConfig, spec: AlgorithmSpec, n_envs: int) -> int:
    """Return the environment steps between two updates: evaluation can be no finer than this."""
    values = algo.hyperparams
    if spec.family is Family.ON_POLICY:
        return int(values.get("n_steps", 2048)) * n_envs
    if spec.family is Family.OFF_POLICY:
        train_freq = values.get("train_freq", 1)
        count, unit = train_freq if isinstance(train_freq, (list, tuple)) else (train_freq, "step")
        return n_envs if unit == "episode" else int(count) * n_envs
    return n_envs


def _check_schedules(values: dict[str, Any], spec: AlgorithmSpec) -> None:
    for key in spec.schedules:
        value = values.get(key)
        if value is None:
            continue
        schedule = parse_schedule(value, f"algo.hyperparams.{key}")
        if key in _POSITIVE_SCHEDULES and schedule.start <= 0:
            raise ConfigError(f"algo.hyperparams.{key}={value}: must be above 0.")


def _check_off_policy_parts(algo: AlgoConfig, spec: AlgorithmSpec) -> None:
    is_off_policy = spec.family is Family.OFF_POLICY
    if algo.action_noise is not None:
        if not is_off_policy or "Box" not in spec.actions:
            raise ConfigError(
                f"algo.action_noise is for off-policy algorithms with continuous actions; "
                f"{spec.name} explores by itself. Remove it."
            )
        ACTION_NOISES.check_name(algo.action_noise.type)
    if algo.replay_buffer is not None:
        if not is_off_policy:
            raise ConfigError(
                f"algo.replay_buffer={algo.replay_buffer}: {spec.name} keeps no replay buffer. "
                "Set algo.replay_buffer=null."
            )
        REPLAY_BUFFERS.check_name(algo.replay_buffer)


def _check_batches(values: dict[str, Any], spec: AlgorithmSpec, n_envs: int) -> list[str]:
    n_steps, batch_size = values.get("n_steps"), values.get("batch_size")
    if n_steps is None or batch_size is None:
        return []
    rollout = n_steps * n_envs
    if batch_size > rollout:
        raise ConfigError(
            f"algo.hyperparams.batch_size={batch_size} is above one rollout "
            f"(n_steps {n_steps} x n_envs {n_envs} = {rollout}). Set it to at most {rollout}."
        )
    if batch_size == 1 and values.get("normalize_advantage", True):
        raise ConfigError(
            "algo.hyperparams.batch_size=1 cannot be normalised. Set it to at least 2, or "
            "algo.hyperparams.normalize_advantage=false."
        )
    if rollout % batch_size:
        return [
            f"algo.hyperparams.batch_size={batch_size} does not divide one rollout "
            f"(n_steps {n_steps} x n_envs {n_envs} = {rollout}): the last batch is cut short."
        ]
    return []


def _check_train_freq(values: dict[str, Any], n_envs: int) -> None:
    train_freq = values.get("train_freq", 1)
    where = f"algo.hyperparams.train_freq={train_freq}"
    is_pair = isinstance(train_freq, (list, tuple)) and len(train_freq) == 2
    count, unit = train_freq if is_pair else (train_freq, "step")
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 1
    if not is_count or unit not in ("step", "episode"):
        raise ConfigError(f"{where}: write a number of steps, [4, step] or [1, episode].")
    if unit == "episode" and n_envs > 1:
        raise ConfigError(
            f"{where}: updates counted in episodes need one environment, not n_envs={n_envs}. "
            "Set n_envs=1, or count in steps."
        )

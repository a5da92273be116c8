"""Checks of an algorithm's hyperparameters that need neither torch nor an environment.

One table has the numbers that they work with, for all algorithms. The bounds are those of the code
of Stable-Baselines3 and sb3-contrib: what it asserts, what torch refuses, and what would divide by
zero or train on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.config.catalog import (
    ACTION_NOISES,
    REPLAY_BUFFERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import LARGEST, AlgoConfig
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments, fit_type
from rlzoo_plus.errors import ConfigError, Mistakes, unknown_name
from rlzoo_plus.synonyms import key_meant

# Schedules that may end at 0, but not start there.
_POSITIVE_SCHEDULES = ("clip_range_vf", "delta_std")


def fit_hyperparams(algo: AlgoConfig, spec: AlgorithmSpec) -> AlgoConfig:
    """Check names and types against the algorithm's constructor; return fitted values.

    Raises:
        ConfigError: An argument is unknown, set elsewhere, or of the wrong type; it names all.
    """
    mistakes = Mistakes()
    known = constructor_arguments(spec.entry_point)
    fitted = {}
    for key, value in algo.hyperparams.items():
        if key in MANAGED:
            mistakes.add(f"algo.hyperparams.{key} is not set here: {MANAGED[key]}.")
        elif key in spec.unused:
            mistakes.add(
                f"algo.hyperparams.{key}={value}: {spec.name} takes it and does not do what it "
                "says. Leave it out."
            )
        elif known is None:
            fitted[key] = value
        elif key not in known:
            what, full = f"hyperparameter of {spec.name}", f"algo.hyperparams.{key}"
            settable = known.keys() - MANAGED.keys() - set(spec.unused)
            keys = [f"algo.hyperparams.{name}" for name in settable]
            listed_by = f"rlzoo-plus train algo={spec.name} --cfg job"
            mistakes.add(unknown_name(what, full, keys, listed_by, key_meant(full, keys)))
        else:
            try:
                fitted[key] = fit_type(value, known[key])
            except ValueError as error:
                mistakes.add(f"algo.hyperparams.{key}={value}: {error}.")
    mistakes.tell()
    if all(fitted[key] is value for key, value in algo.hyperparams.items()):
        return algo  # jobs of a sweep may share it
    return algo.model_copy(update={"hyperparams": fitted})


def check_hyperparams(algo: AlgoConfig, spec: AlgorithmSpec, n_envs: int) -> list[str]:
    """Check schedules, bounds and combinations; return warnings.

    Raises:
        ConfigError: Hyperparameters cannot work; it names all.
    """
    values, mistakes, warnings = algo.hyperparams, Mistakes(), []
    for key in spec.schedules:
        if (value := values.get(key)) is not None:
            with mistakes.kept():
                schedule = parse_schedule(value, f"algo.hyperparams.{key}")
                if key in _POSITIVE_SCHEDULES and schedule.start <= 0:
                    raise ConfigError(f"algo.hyperparams.{key}={value}: must be above 0.")
    outside = set()
    for key, value in values.items():
        limit = limit_of(key, spec.entry_point)
        if limit is not None and not limit.allows(value):
            outside.add(key)
            mistakes.add(f"algo.hyperparams.{key}={value}: needs {limit.rule}.")
    with mistakes.kept():
        _check_off_policy_parts(algo, spec)
    if spec.family is Family.ON_POLICY and not outside & {"n_steps", "batch_size"}:
        with mistakes.kept():
            warnings = _check_batches(values, n_envs)
    if spec.family is Family.OFF_POLICY:
        with mistakes.kept():
            _check_train_freq(values.get("train_freq", 1), n_envs)
    if not outside & {"n_top", "n_delta"}:
        with mistakes.kept():
            _check_directions(values.get("n_top"), values.get("n_delta"))
    mistakes.tell()
    return warnings


def has_rollout(algo: AlgoConfig, spec: AlgorithmSpec) -> bool:
    """Return whether the hyperparameters that decide `rollout_steps` can work."""
    values = algo.hyperparams
    if spec.family is Family.ON_POLICY:
        return _COUNT.allows(values.get("n_steps", 2048))
    if spec.family is Family.OFF_POLICY:
        return _count_and_unit(values.get("train_freq", 1)) is not None
    return True


def trains_by_episode(algo: AlgoConfig) -> bool:
    """Return whether an iteration takes whole episodes, however long they are."""
    family = get_algorithm(algo.name).family
    found = _count_and_unit(algo.hyperparams.get("train_freq", 1))
    is_counted_so = found is not None and found[1] == "episode"
    return family is Family.EVOLUTION or (family is Family.OFF_POLICY and is_counted_so)


def rollout_steps(algo: AlgoConfig, spec: AlgorithmSpec, n_envs: int) -> int:
    """Return the environment steps between two updates, the shortest interval of evaluations."""
    values = algo.hyperparams
    if spec.family is Family.ON_POLICY:
        return int(values.get("n_steps", 2048)) * n_envs
    if spec.family is Family.OFF_POLICY:
        train_freq = values.get("train_freq", 1)
        count, unit = train_freq if isinstance(train_freq, (list, tuple)) else (train_freq, "step")
        return n_envs if unit == "episode" else int(count) * n_envs
    return n_envs


def updates_per_step(algo: AlgoConfig, n_envs: int) -> float:
    """Return the gradient steps, or on-policy the epochs, for each environment step."""
    values, spec = algo.hyperparams, get_algorithm(algo.name)
    if spec.family is not Family.OFF_POLICY:
        return float(values.get("n_epochs", 1))
    steps = values.get("gradient_steps", 1)
    return 1.0 if steps == -1 else steps / rollout_steps(algo, spec, n_envs)


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
    if algo.hyperparams.get("optimize_memory_usage") is True:
        _check_small_buffer(algo, spec)


def _check_small_buffer(algo: AlgoConfig, spec: AlgorithmSpec) -> None:
    """Refuse `optimize_memory_usage` where the buffer cannot do it."""
    key = "algo.hyperparams.optimize_memory_usage=true"
    if "her" in (algo.replay_buffer, spec.replay_buffer):
        raise ConfigError(f"{key}: the buffer of HER cannot do that. Leave it out.")
    kwargs = algo.hyperparams.get("replay_buffer_kwargs") or {}
    if kwargs.get("handle_timeout_termination", True):
        raise ConfigError(
            f"{key}: such a buffer takes a time limit for a failure. Leave it out, or accept that: "
            "algo.hyperparams.replay_buffer_kwargs={handle_timeout_termination: false}."
        )


def _check_batches(values: dict[str, Any], n_envs: int) -> list[str]:
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
            "algo.hyperparams.batch_size=1 cannot be normalized. Set it to at least 2, or "
            "algo.hyperparams.normalize_advantage=false."
        )
    if rollout % batch_size:
        return [
            f"algo.hyperparams.batch_size={batch_size} does not divide one rollout "
            f"(n_steps {n_steps} x n_envs {n_envs} = {rollout}): the last batch is cut short."
        ]
    return []


def _check_directions(top: int | None, directions: int | None) -> None:
    if top is not None and directions is not None and top > directions:
        raise ConfigError(
            f"algo.hyperparams.n_top={top} is above n_delta={directions}. Set it to at most "
            f"{directions}, or to null for all."
        )


def _check_train_freq(train_freq: Any, n_envs: int) -> None:
    where = f"algo.hyperparams.train_freq={train_freq}"
    found = _count_and_unit(train_freq)
    if found is None:
        raise ConfigError(f"{where}: write a number of steps, [4, step] or [1, episode].")
    if found[1] == "episode" and n_envs > 1:
        raise ConfigError(
            f"{where}: updates counted in episodes need one environment, not n_envs={n_envs}. "
            "Set n_envs=1, or count in steps."
        )


def _count_and_unit(train_freq: Any) -> tuple[int, str] | None:
    """Return how often, and of what, `train_freq` updates; None if it does not say so."""
    is_pair = isinstance(train_freq, (list, tuple)) and len(train_freq) == 2
    count, unit = train_freq if is_pair else (train_freq, "step")
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 1
    return (count, unit) if is_count and unit in ("step", "episode") else None


@dataclass(frozen=True)
class Limit:
    """The values that a hyperparameter can have."""

    rule: str  # Completes "needs ..."
    allows: Callable[[Any], bool]  # Tells whether a value is one of them

    def or_value(self, value: str | None, name: str) -> Limit:
        """Return the limit that allows one more value, called `name`."""
        return Limit(f"{self.rule}, or {name}", lambda v: v == value or self.allows(v))


def limit_of(key: str, entry_point: str) -> Limit | None:
    """Return the limit of a hyperparameter, None if only its type counts.

    Args:
        key: Its name.
        entry_point: `module:Class` of the algorithm. In one of the user's own, only what this
            package calculates with is limited.
    """
    module, _, class_name = entry_point.partition(":")
    if module.split(".")[0] not in ("stable_baselines3", "sb3_contrib", "sbx"):
        return _SHARED[key] if key in _OF_ANY_ALGORITHM else None
    return _OWN.get((class_name, key)) or _SHARED.get(key)


def _number(rule: str, allows: Callable[[float], bool], *, infinite: bool = False) -> Limit:
    def is_allowed(value: Any) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and (infinite or math.isfinite(value)) and allows(value)

    return Limit(rule, is_allowed)


def _whole(low: int, also: tuple[int, ...] = (), meaning: str = "") -> Limit:
    def is_allowed(value: Any) -> bool:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and (low <= value <= LARGEST or value in also)

    return Limit(f"a whole number of at least {low}{meaning}", is_allowed)


def _is_learned_entropy(value: Any) -> bool:
    """Tell whether a value is `auto` or `auto_<first value>`."""
    if not isinstance(value, str) or not value.startswith("auto_"):
        return bool(value == "auto")
    try:
        return 0 < float(value.removeprefix("auto_")) < math.inf
    except ValueError:
        return False


_COUNT = _whole(1)
_FINITE = _number("a finite number", lambda v: True)
_POSITIVE = _number("a finite number above 0", lambda v: v > 0)
_NOT_NEGATIVE = _number("a finite number of at least 0", lambda v: v >= 0)
# An infinite norm disables clipping.
_NORM = _number("a number above 0; .inf clips nothing", lambda v: v > 0, infinite=True)
_ENTROPY = Limit(
    f"{_NOT_NEGATIVE.rule}, auto, or auto_0.1 for a first value",
    lambda value: _is_learned_entropy(value) or _NOT_NEGATIVE.allows(value),
)
_OF_ANY_ALGORITHM = ("batch_size", "buffer_size", "n_steps", "n_epochs", "gamma")

_COUNTS = (
    *("batch_size", "buffer_size", "n_epochs", "n_steps", "n_delta", "n_eval_episodes"),
    *("policy_delay", "stats_window_size", "target_update_interval", "cg_max_steps"),
    *("line_search_max_iter", "n_critic_updates", "sub_sampling_factor"),
)
_SHARES = ("gamma", "gae_lambda", "tau", "exploration_initial_eps", "exploration_final_eps")
_AMOUNTS = ("vf_coef", "cg_damping", "rms_prop_eps", "target_policy_noise", "target_noise_clip")
_SHARED: dict[str, Limit] = {
    **dict.fromkeys(_COUNTS, _COUNT),
    **dict.fromkeys(_SHARES, _number("a number from 0 to 1", lambda v: 0 <= v <= 1)),
    **dict.fromkeys(_AMOUNTS, _NOT_NEGATIVE),
    "n_top": _COUNT.or_value(None, "null"),
    "learning_starts": _whole(0),
    "top_quantiles_to_drop_per_net": _whole(0),
    "sde_sample_freq": _whole(1, (-1, 0), ", or -1 for once a rollout"),
    "gradient_steps": _whole(1, (-1,), ", or -1 for as many as steps were taken"),
    "exploration_fraction": _number("a number above 0, and at most 1", lambda v: 0 < v <= 1),
    "line_search_shrinking_factor": _number("a number above 0 and below 1", lambda v: 0 < v < 1),
    "max_grad_norm": _NORM,
    "qf_learning_rate": _POSITIVE.or_value(None, "null: that of learning_rate"),
    "target_kl": _POSITIVE.or_value(None, "null"),
    "ent_coef": _FINITE,
    "alive_bonus_offset": _FINITE,
    "target_entropy": _FINITE.or_value("auto", "auto"),
}
_OWN: dict[tuple[str, str], Limit] = {
    ("QRDQN", "max_grad_norm"): _NORM.or_value(None, "null"),
    ("TRPO", "target_kl"): _POSITIVE,
    **{(name, "ent_coef"): _ENTROPY for name in ("SAC", "TQC", "CrossQ")},
}

"""Checks of an algorithm's hyperparameters that need neither torch nor an environment.

One table has the numbers that they work with, for all algorithms. The bounds are those of the code
of Stable-Baselines3 and sb3-contrib: what it asserts, what torch refuses, and what would divide by
zero or train on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.config.catalog import (
    ACTION_NOISES,
    PRIORITIZED,
    REPLAY_BUFFERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import AlgoConfig
from rlzoo_plus.config.section import LARGEST
from rlzoo_plus.config.signatures import MANAGED, PLAIN_SEED, constructor_arguments, fit_type
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
        if key == "seed" and value == PLAIN_SEED:
            fitted[key] = value
        elif key in MANAGED:
            mistakes.add(f"algo.hyperparams.{key} is not set here: {MANAGED[key]}.")
        elif key in spec.unused:
            what = f"{spec.name} takes it and does not do what it says"
            mistakes.add(f"algo.hyperparams.{key}={value}: {what}. Leave it out.")
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
    """Check schedules, bounds and combinations, n_envs=0 if it is unknown; return warnings.

    Raises:
        ConfigError: Hyperparameters cannot work; it names all.
    """
    values, mistakes, warnings = algo.hyperparams, Mistakes(), list[str]()
    for key in spec.schedules:
        if (value := values.get(key)) is not None:
            with mistakes.kept():
                schedule = parse_schedule(value, f"algo.hyperparams.{key}")
                if key == "beta" and not all(0 <= v <= 1 for v in (schedule.start, schedule.end)):
                    raise ConfigError(f"algo.hyperparams.beta={value}: must be from 0 to 1.")
                if key in _POSITIVE_SCHEDULES and schedule.start <= 0:
                    raise ConfigError(f"algo.hyperparams.{key}={value}: must be above 0.")
    outside = set[str]()
    for key, value in values.items():
        limit = limit_of(key, spec.entry_point)
        if limit is not None and not limit.allows(value):
            outside.add(key)
            mistakes.add(f"algo.hyperparams.{key}={value}: needs {limit.rule}.")
    for registry, name in (
        (ACTION_NOISES, algo.action_noise.type if algo.action_noise else None),
        (REPLAY_BUFFERS, algo.replay_buffer),
    ):
        if name is not None:
            with mistakes.kept():
                registry.check_name(name)
    for text in _combinations(algo, spec, n_envs, outside):
        mistakes.add(text)
    mistakes.tell()
    n_steps, batch_size = values.get("n_steps"), values.get("batch_size")
    if spec.family is Family.ON_POLICY and n_steps and batch_size and n_steps * n_envs % batch_size:
        warnings.append(
            f"algo.hyperparams.batch_size={batch_size} does not divide one rollout (n_steps "
            f"{n_steps} x n_envs {n_envs} = {n_steps * n_envs}): the last batch is cut short."
        )
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


def _combinations(
    algo: AlgoConfig, spec: AlgorithmSpec, n_envs: int, outside: set[str]
) -> Iterator[str]:
    """Yield what cannot work together; nothing of the keys that are outside of their bounds."""
    values, prefix = algo.hyperparams, "algo.hyperparams."
    is_off_policy = spec.family is Family.OFF_POLICY
    if algo.action_noise is not None and not (is_off_policy and "Box" in spec.actions):
        yield (
            f"algo.action_noise is for off-policy algorithms with continuous actions; {spec.name} "
            "explores by itself. Remove it."
        )
    if algo.replay_buffer is not None and not is_off_policy:
        yield (
            f"algo.replay_buffer={algo.replay_buffer}: {spec.name} keeps no replay buffer. Set "
            "algo.replay_buffer=null."
        )
    elif algo.replay_buffer is not None and spec.recurrent:
        yield (
            f"algo.replay_buffer={algo.replay_buffer}: {spec.name} learns from sequences, of a "
            "buffer of its own. Set algo.replay_buffer=null."
        )
    elif algo.replay_buffer in PRIORITIZED and spec.backend != "torch":
        yield (
            f"algo.replay_buffer={algo.replay_buffer}: {spec.name} computes its losses with JAX. "
            f"Use algo={spec.name.removeprefix('sbx_')}, or leave it out."
        )
    if algo.symmetry and (not spec.has_plain_batches or algo.replay_buffer in PRIORITIZED):
        yield (
            f"algo.symmetry={algo.symmetry}: {algo.replay_buffer or spec.name} has batches without "
            "mirror images. Leave it out, or use ppo, sac or another algorithm of torch."
        )
    if algo.symmetry_weight is not None and algo.symmetry != "loss":
        yield "algo.symmetry_weight is that of algo.symmetry=loss. Set both, or leave it out."
    if values.get("optimize_memory_usage") is True and algo.replay_buffer in PRIORITIZED:
        yield (
            f"{prefix}optimize_memory_usage=true: the buffer of algo.replay_buffer="
            f"{algo.replay_buffer} cannot do that. Leave it out."
        )
    elif values.get("optimize_memory_usage") is True:
        kwargs = values.get("replay_buffer_kwargs") or {}
        key = f"{prefix}optimize_memory_usage=true"
        if "her" in (algo.replay_buffer, spec.replay_buffer):
            yield f"{key}: the buffer of HER cannot do that. Leave it out."
        elif kwargs.get("handle_timeout_termination", True):
            yield (
                f"{key}: such a buffer takes a time limit for a failure. Leave it out, or accept "
                f"that: {prefix}replay_buffer_kwargs={{handle_timeout_termination: false}}."
            )
    n_steps, size = values.get("n_steps"), values.get("batch_size")
    is_sound = not outside & {"n_steps", "batch_size"}
    if spec.family is Family.ON_POLICY and n_steps and size and is_sound:
        rollout = n_steps * n_envs
        if size > rollout > 0:
            yield (
                f"{prefix}batch_size={size} is above one rollout (n_steps {n_steps} x n_envs "
                f"{n_envs} = {rollout}). Set it to at most {rollout}."
            )
        elif size == 1 and values.get("normalize_advantage", True):
            yield (
                f"{prefix}batch_size=1 cannot be normalized. Set it to at least 2, or "
                f"{prefix}normalize_advantage=false."
            )
    if is_off_policy:
        train_freq = values.get("train_freq", 1)
        found, where = _count_and_unit(train_freq), f"{prefix}train_freq={train_freq}"
        if found is None:
            yield f"{where}: write a number of steps, [4, step] or [1, episode]."
        elif found[1] == "episode" and n_envs > 1:
            yield f"{where}: episodes need n_envs=1, not n_envs={n_envs}. Or count in steps."
    top, directions = values.get("n_top"), values.get("n_delta")
    if top and directions and not outside & {"n_top", "n_delta"} and top > directions:
        yield f"{prefix}n_top={top} is above n_delta={directions}. Set it lower, or to null."


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
    if module.split(".")[0] not in ("stable_baselines3", "sb3_contrib", "sbx", "rlzoo_plus"):
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
_AMOUNTS = (
    "ent_weight",
    "l2_weight",
    "vf_coef",
    "cg_damping",
    "rms_prop_eps",
    "target_policy_noise",
    "target_noise_clip",
)
_SHARED: dict[str, Limit] = {
    **dict.fromkeys(_COUNTS, _COUNT),
    **dict.fromkeys(_SHARES, _number("a number from 0 to 1", lambda v: 0 <= v <= 1)),
    **dict.fromkeys(_AMOUNTS, _NOT_NEGATIVE),
    "n_top": _COUNT.or_value(None, "null"),
    "learning_starts": _whole(0),
    "sequence_length": _number("a whole number from 1 to 10000", lambda v: 1 <= v <= 10000),
    "burn_in": _number("a whole number from 0 to 10000", lambda v: 0 <= v <= 10000),
    "held_out": _number("a number of at least 0 and below 1", lambda v: 0 <= v < 1),
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
_WITH_ENTROPY = ("SAC", "TQC", "CrossQ", "SACDiscrete", "RecurrentSAC")
_OWN: dict[tuple[str, str], Limit] = {
    ("QRDQN", "max_grad_norm"): _NORM.or_value(None, "null"),
    ("TRPO", "target_kl"): _POSITIVE,
    **{(name, "ent_coef"): _ENTROPY for name in _WITH_ENTROPY},
}

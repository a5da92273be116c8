"""The numbers that hyperparameters can work with: one table for all algorithms.

The bounds are those of the code of Stable-Baselines3 and sb3-contrib: what it asserts, what torch
refuses, and what would divide by zero or train on nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.config.numbers import LARGEST


@dataclass(frozen=True)
class Limit:
    """A hyperparameter's values.

    Attributes:
        rule: Completes "needs ...".
        allows: Tells whether a value is one of them.
    """

    rule: str
    allows: Callable[[Any], bool]


def limit_of(key: str, entry_point: str) -> Limit | None:
    """Return what a hyperparameter may be, None where only its type counts.

    Args:
        key: Its name.
        entry_point: `module:Class` of the algorithm; of a user's own only what the manager itself
            calculates with is limited.
    """
    module, _, class_name = entry_point.partition(":")
    if module.split(".")[0] not in ("stable_baselines3", "sb3_contrib"):
        return _SHARED[key] if key in _OF_ANY_ALGORITHM else None
    return _OWN.get((class_name, key)) or _SHARED.get(key)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(rule: str, allows: Callable[[float], bool], *, infinite: bool = False) -> Limit:
    def is_allowed(value: Any) -> bool:
        return _is_number(value) and (infinite or math.isfinite(value)) and allows(value)

    return Limit(rule, is_allowed)


def _whole(low: int, also: tuple[int, ...] = (), meaning: str = "") -> Limit:
    def is_allowed(value: Any) -> bool:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and (low <= value <= LARGEST or value in also)

    return Limit(f"a whole number of at least {low}{meaning}", is_allowed)


def _or_null(limit: Limit) -> Limit:
    return Limit(f"{limit.rule}, or null", lambda value: value is None or limit.allows(value))


def _or_auto(limit: Limit) -> Limit:
    return Limit(f"{limit.rule}, or auto", lambda value: value == "auto" or limit.allows(value))


def _is_learned_entropy(value: Any) -> bool:
    """Tell `auto` and `auto_<first value>`."""
    name, underscore, first = value.partition("_") if isinstance(value, str) else ("", "", "")
    if name != "auto" or not underscore:
        return bool(value == "auto")
    try:
        return math.isfinite(float(first)) and float(first) > 0
    except ValueError:
        return False


_COUNT = _whole(1)
_SHARE = _number("a number from 0 to 1", lambda v: 0 <= v <= 1)
_POSITIVE_SHARE = _number("a number above 0, and at most 1", lambda v: 0 < v <= 1)
_FINITE = _number("a finite number", lambda v: True)
_POSITIVE = _number("a finite number above 0", lambda v: v > 0)
_NOT_NEGATIVE = _number("a finite number of at least 0", lambda v: v >= 0)
# An endless norm is how to switch clipping off.
_NORM = _number("a number above 0; .inf clips nothing", lambda v: v > 0, infinite=True)
_ENTROPY = Limit(
    f"{_NOT_NEGATIVE.rule}, auto, or auto_0.1 for a first value",
    lambda value: _is_learned_entropy(value) or _NOT_NEGATIVE.allows(value),
)
_OF_ANY_ALGORITHM = ("batch_size", "buffer_size", "n_steps", "n_epochs", "gamma")

_SHARED: dict[str, Limit] = {
    **dict.fromkeys(
        (
            "batch_size",
            "buffer_size",
            "n_epochs",
            "n_steps",
            "n_delta",
            "n_eval_episodes",
            "policy_delay",
            "stats_window_size",
            "target_update_interval",
            "cg_max_steps",
            "line_search_max_iter",
            "n_critic_updates",
            "sub_sampling_factor",
        ),
        _COUNT,
    ),
    "n_top": _or_null(_COUNT),
    "learning_starts": _whole(0),
    "top_quantiles_to_drop_per_net": _whole(0),
    "sde_sample_freq": _whole(1, (-1, 0), ", or -1 for once a rollout"),
    "gradient_steps": _whole(1, (-1,), ", or -1 for as many as steps were taken"),
    **dict.fromkeys(
        (
            "gamma",
            "gae_lambda",
            "tau",
            "exploration_initial_eps",
            "exploration_final_eps",
        ),
        _SHARE,
    ),
    "exploration_fraction": _POSITIVE_SHARE,
    "line_search_shrinking_factor": _number(
        "a number above 0 and below 1", lambda value: 0 < value < 1
    ),
    "max_grad_norm": _NORM,
    "target_kl": _or_null(_POSITIVE),
    "ent_coef": _FINITE,
    "alive_bonus_offset": _FINITE,
    "target_entropy": _or_auto(_FINITE),
    **dict.fromkeys(
        ("vf_coef", "cg_damping", "rms_prop_eps", "target_policy_noise", "target_noise_clip"),
        _NOT_NEGATIVE,
    ),
}
_OWN: dict[tuple[str, str], Limit] = {
    ("QRDQN", "max_grad_norm"): _or_null(_NORM),
    ("TRPO", "target_kl"): _POSITIVE,
    **{(name, "ent_coef"): _ENTROPY for name in ("SAC", "TQC", "CrossQ")},
}

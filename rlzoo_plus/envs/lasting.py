"""What of a user's environment lasts longer than an episode: by its account, or as it shows.

A user's environment or wrapper offers `state_dict()` and `load_state_dict(state)` for an account.
Robots of ours use these names for their whole state, which is put back elsewhere. An environment
without an account that counts episodes or wins counts from zero where it is made anew; replaying
the running episode need not show that, but the counter itself does.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rlzoo_plus.artifacts.untrusted import printable

# Whose attributes are known not to matter, or are put back elsewhere.
_KNOWN = {"gymnasium", "robots", "rlzoo_plus", "pybullet_envs_gymnasium", "panda_gym"}
_MOST_VALUES, _LARGEST_ARRAY, _LONGEST = 1000, 1000, 40


def layers_of(env: gym.Env) -> list[gym.Wrapper]:
    """Return the wrappers around an environment, from the outermost inwards."""
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return layers


def accounting_parts(env: gym.Env) -> Iterator[tuple[str, Any]]:
    """Yield what offers an account of its state, by its place in the chain and its class."""
    for number, part in enumerate([*layers_of(env), env.unwrapped]):
        kind = type(part)
        is_ours = hasattr(kind, "exact_state")
        if not is_ours and hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict"):
            yield f"{number}:{kind.__name__}", part


def accounts(env: gym.Env) -> dict[str, Any]:
    """Return a copy of every account."""
    return {place: copy.deepcopy(part.state_dict()) for place, part in accounting_parts(env)}


def load_accounts(env: gym.Env, remembered: Mapping[str, Any]) -> str | None:
    """Give every part its account back; return why one refuses it, or None."""
    for place, part in accounting_parts(env):
        if place not in remembered:
            continue
        try:
            part.load_state_dict(copy.deepcopy(remembered[place]))
        # Whatever a part of a user's makes of it.
        except Exception as error:
            what = f"{type(part).__name__} refuses its state"
            return printable(f"{what}: {type(error).__name__}: {error}")
    return None


def attributes_of(parts: Sequence[object]) -> dict[str, str]:
    """Return the numbers, texts and small arrays among the attributes of a user's classes.

    Texts may be secrets, and come as hashes.

    Args:
        parts: An environment and its wrappers.
    """
    found: dict[str, str] = {}
    for part in parts:
        kind = type(part)
        if kind.__module__.split(".")[0] in _KNOWN:
            continue
        for name, value in vars(part).items():
            text = _text(value)
            if text is not None and len(found) < _MOST_VALUES:
                found[f"{kind.__name__}.{name}"] = text
    return found


def first_difference(before: Mapping[str, Any], now: Mapping[str, str]) -> str | None:
    """Return the first attribute that has another value, or None."""
    for name, text in now.items():
        if before.get(name, text) != text:
            return f"{name} was {before[name]}, is {text} where the episode is replayed"
    return None


def _text(value: Any) -> str | None:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return str(value)[:_LONGEST]
    if isinstance(value, str):
        return f"text {_hash(value.encode())}"
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if is_array and value.size <= _LARGEST_ARRAY:
        return f"array {_hash(value.tobytes())}"
    return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]

"""What parts of an environment remember between episodes, by their own account.

A user's environment or wrapper offers `state_dict()` and `load_state_dict(state)` for it. Robots of
ours use these names for their whole state, which is put back elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym

from rlzoo_plus.artifacts.untrusted import printable


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

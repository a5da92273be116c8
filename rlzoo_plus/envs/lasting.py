"""What of a user's environment lasts longer than an episode, as far as its attributes show it.

An environment that counts episodes or wins counts from zero where it is made anew. Replaying the
running episode need not show that; the counter itself does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Whose attributes are known not to matter, or are put back elsewhere.
_KNOWN = {"gymnasium", "robots", "rlzoo_plus", "pybullet_envs_gymnasium", "panda_gym"}
_MOST_VALUES, _LARGEST_ARRAY, _LONGEST = 1000, 1000, 40


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

"""Gymnasium spaces as plain data, so that a policy can be rebuilt without its environment."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces


def encode_space(space: spaces.Space) -> dict[str, Any]:
    """Return a space as JSON data.

    Raises:
        TypeError: Policies cannot be built for this kind of space.
    """
    if isinstance(space, spaces.Box):
        return {
            "type": "box",
            "low": _encode_bound(space.low),
            "high": _encode_bound(space.high),
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.Discrete):
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start).tolist()
        return {"type": "multi_discrete", "nvec": space.nvec.tolist(), "start": start}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "multi_binary", "n": np.asarray(space.n).tolist()}
    if isinstance(space, spaces.Dict):
        # Pairs, because the order of the keys is the order of a network's inputs.
        return {"type": "dict", "spaces": [[k, encode_space(s)] for k, s in space.spaces.items()]}
    raise TypeError(f"a space of type {type(space).__name__} cannot be stored")


def decode_space(data: dict[str, Any]) -> spaces.Space:
    """Return the space that `encode_space` described.

    Raises:
        ValueError: The data describes no known space.
    """
    kind = data.get("type")
    if kind == "box":
        dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
        low = _decode_bound(data["low"], shape, dtype)
        return spaces.Box(low, _decode_bound(data["high"], shape, dtype), dtype=dtype.type)
    if kind == "discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if kind == "multi_binary":
        return spaces.MultiBinary(data["n"])
    if kind == "dict":
        # An OrderedDict, because a plain one would be sorted.
        return spaces.Dict(OrderedDict((k, decode_space(s)) for k, s in data["spaces"]))
    raise ValueError(f"unknown kind of space {kind!r}")


def _encode_bound(bound: np.ndarray) -> Any:
    """Write equal bounds once; infinities, which JSON does not know, as text."""
    values = np.asarray(bound).ravel().tolist()
    plain = [v if np.isfinite(v) else str(v) for v in values]
    return plain[0] if len(set(plain)) == 1 else plain


def _decode_bound(data: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    plain = data if isinstance(data, list) else [data]
    values = np.array([float(v) if isinstance(v, str) else v for v in plain], dtype=dtype)
    return values.reshape(shape) if isinstance(data, list) else np.full(shape, values[0])

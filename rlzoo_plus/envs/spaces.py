"""Gymnasium spaces as plain data, so that a policy can be rebuilt without its environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces

# A full-HD colour picture has 6 million.
LARGEST_SPACE = 10_000_000
MOST_PARTS = 1000
MOST_DIMENSIONS = 32
_BOX_DTYPES = frozenset(
    (
        *("bool", "float16", "float32", "float64"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
_WIDEST = 2**62


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
        ValueError: The data describes no known space, or one beyond all use.
    """
    try:
        _check_size(data)
        return _decode(data)
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"a space that cannot be read ({error!r})") from error


def _decode(data: dict[str, Any]) -> spaces.Space:
    kind = data["type"]
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
    # An OrderedDict, because a plain one would be sorted.
    return spaces.Dict(OrderedDict((k, _decode(s)) for k, s in data["spaces"]))


def _check_size(data: dict[str, Any]) -> None:
    """Check all that a space allocates before any of it is built."""
    elements, parts, left = 0, 0, [data]
    while left:
        part = left.pop()
        parts += 1
        if part["type"] == "dict":
            keys = [key for key, _ in part["spaces"]]
            if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
                raise ValueError("the keys of a dictionary space are not names, or not unique")
            left += [space for _, space in part["spaces"]]
        else:
            elements += _elements(part)
        if elements > LARGEST_SPACE or parts > MOST_PARTS:
            raise ValueError(
                f"a space has more than {LARGEST_SPACE:,} elements or {MOST_PARTS:,} parts"
            )


def _elements(part: dict[str, Any]) -> int:
    kind = part["type"]
    if kind == "box":
        if part["dtype"] not in _BOX_DTYPES:
            raise ValueError(f"no box is of type {part['dtype']!r}")
        return _product(part["shape"])
    if kind == "discrete":
        _check_whole([part["n"]], 1)
        _check_whole([part["start"]], -_WIDEST)
        return 1
    if kind == "multi_discrete":
        counts, starts = np.ravel(part["nvec"]).tolist(), np.ravel(part["start"]).tolist()
        _check_whole(counts, 1)
        _check_whole(starts, -_WIDEST)
        return len(counts)
    if kind == "multi_binary":
        return _product(part["n"] if isinstance(part["n"], list) else [part["n"]])
    raise ValueError(f"unknown kind of space {kind!r}")


def _product(shape: list[int]) -> int:
    _check_whole(shape, 0)
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"a space has more than {MOST_DIMENSIONS} dimensions")
    # A zero must not hide the other sizes.
    return math.prod(max(1, size) for size in shape)


def _check_whole(numbers: list[Any], least: int) -> None:
    for number in numbers:
        if type(number) is not int or not least <= number <= _WIDEST:
            raise ValueError(f"{number!r} is not a whole number from {least} to {_WIDEST}")


def _encode_bound(bound: np.ndarray) -> Any:
    """Write equal bounds once; infinities, which JSON does not know, as text."""
    values = np.asarray(bound).ravel().tolist()
    plain = [v if np.isfinite(v) else str(v) for v in values]
    return plain[0] if len(set(plain)) == 1 else plain


def _decode_bound(data: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    plain = data if isinstance(data, list) else [data]
    values = np.array([_number(v) for v in plain], dtype=dtype)
    return values.reshape(shape) if isinstance(data, list) else np.full(shape, values[0])


def _number(value: Any) -> float | int:
    if value in ("inf", "-inf"):
        return float(value)
    if type(value) not in (bool, int, float):
        raise ValueError(f"a bound is {value!r}, not a number")
    return value  # type: ignore[no-any-return]

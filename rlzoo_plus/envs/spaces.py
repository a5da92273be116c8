"""Gymnasium spaces as plain data: a policy can be built without its environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.grouped import KINDS, GroupedActions

Space = spaces.Space[Any]
# A full-HD colour image has 6 million.
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


def parts_of(space: Space) -> dict[str, Space]:
    """Return the parts of a space by key; that of a flat one is empty."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}


def encode_space(space: Space) -> dict[str, Any]:
    """Return a space as JSON data.

    Raises:
        TypeError: Policies cannot be built for this kind of space.
    """
    if isinstance(space, GroupedActions):
        return {"type": "groups", "spaces": [[k, encode_space(s)] for k, s in space.groups.items()]}
    if isinstance(space, spaces.Box):
        low, high = _encode_bound(space.low), _encode_bound(space.high)
        shape, dtype = list(space.shape), str(space.dtype)
        return {"type": "box", "low": low, "high": high, "shape": shape, "dtype": dtype}
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


def decode_space(data: dict[str, Any]) -> Space:
    """Return the space that `encode_space` described.

    Raises:
        ValueError: The data describes no known space, or one that is too large.
    """
    try:
        return _decode(data, {"elements": LARGEST_SPACE, "parts": MOST_PARTS})
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"a space that cannot be read ({error!r})") from error
    except RecursionError as error:
        raise ValueError("a space is nested too deeply") from error


def _decode(data: dict[str, Any], left: dict[str, int]) -> Space:
    kind = data["type"]
    if kind == "box":
        if data["dtype"] not in _BOX_DTYPES:
            raise ValueError(f"no box is of type {data['dtype']!r}")
        _take(left, _product(data["shape"]))
        dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
        low = _decode_bound(data["low"], shape, dtype)
        return spaces.Box(low, _decode_bound(data["high"], shape, dtype), dtype=dtype.type)
    if kind == "discrete":
        _check_whole([data["n"]], 1)
        _check_whole([data["start"]], -_WIDEST)
        _take(left, 1)
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "multi_discrete":
        counts = np.ravel(data["nvec"]).tolist()
        _check_whole(counts, 1)
        _check_whole(np.ravel(data["start"]).tolist(), -_WIDEST)
        _take(left, len(counts))
        return spaces.MultiDiscrete(data["nvec"], start=data["start"])
    if kind == "multi_binary":
        _take(left, _product(data["n"] if isinstance(data["n"], list) else [data["n"]]))
        return spaces.MultiBinary(data["n"])
    if kind not in ("dict", "groups"):
        raise ValueError(f"unknown kind of space {kind!r}")
    keys = [key for key, _ in data["spaces"]]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise ValueError("the keys of a dictionary space are not names, or not unique")
    _take(left, 0)
    parts = OrderedDict((k, _decode(s, left)) for k, s in data["spaces"])
    if kind == "groups":
        if not parts or not all(type(part) in KINDS for part in parts.values()):
            raise ValueError("the actions of groups are of another kind")
        return GroupedActions(parts)
    # An OrderedDict, because a plain one would be sorted.
    return spaces.Dict(parts)


def _take(left: dict[str, int], elements: int) -> None:
    # Called before anything of that size is built.
    left["elements"] -= elements
    left["parts"] -= 1
    if min(left.values()) < 0:
        raise ValueError(
            f"a space has more than {LARGEST_SPACE:,} elements or {MOST_PARTS:,} parts"
        )


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

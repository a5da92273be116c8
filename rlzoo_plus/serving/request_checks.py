"""Checks of what clients send: each refusal names the field, the rule and the fix."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import printable

_LONGEST_SHOWN, _MOST = 100, 10_000_000


class Refused(Exception):  # noqa: N818
    """Why a request is not answered; the server goes on."""

    def __init__(
        self, field: str, rule: str, fix: str, status: int = 400, retry_s: float | None = None
    ) -> None:
        super().__init__(f"{field}: {rule}. {fix}.")
        self.field, self.rule, self.fix = field, rule, fix
        self.status, self.retry_s = status, retry_s

    def as_json(self) -> dict[str, Any]:
        """Return it as it is sent; `error` is what clients of the Open Inference Protocol show."""
        told = {"error": str(self), "field": self.field, "rule": self.rule, "fix": self.fix}
        return told if self.retry_s is None else {**told, "retry_after_s": self.retry_s}


@dataclass(frozen=True)
class Input:
    """One array that a decision needs."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # Of one observation
    key: str | None  # In a dictionary observation
    low: np.ndarray | None
    high: np.ndarray | None

    @classmethod
    def read(cls, port: Mapping[str, Any]) -> Input:
        """Read an input of deploy.json; raise ValueError if it is none."""
        shape, dtype = tuple(int(size) for size in port["shape"][1:]), np.dtype(port["dtype"])
        if dtype.kind not in "fiub" or min(shape, default=0) < 0 or math.prod(shape) > _MOST:
            raise ValueError(f"{port['name']} is too large, or no array of numbers")
        low, high = (_bound(port.get(name), shape, sign) for name, sign in _BOUNDS.items())
        return cls(port["name"], dtype, shape, port.get("key"), low, high)

    def same_as(self, other: Input) -> bool:
        """Tell whether a client can send the same to both."""
        mine, others = ((p.name, p.dtype, p.shape, p.key) for p in (self, other))
        return mine == others

    def of_json(self, value: Any, field: str) -> np.ndarray:
        """Return nested lists of one observation as an array."""
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError, TypeError, RecursionError):
            raise Refused(field, "not a regular array of numbers", self._wanted()) from None
        return self.checked(array, field)

    def checked(self, array: np.ndarray, field: str, *, rows: bool = False) -> np.ndarray:
        """Return an array in the type of this input, or refuse it.

        Args:
            array: Numbers of any type.
            field: What the client calls it.
            rows: Whether the first axis counts observations.
        """
        kind, dtype = array.dtype.kind, self.dtype
        if array.shape[rows:] != self.shape:
            rule = f"the shape is {array.shape[rows:]}, and must be {self.shape}"
            raise Refused(field, printable(rule, _LONGEST_SHOWN), self._wanted())
        allowed = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[dtype.kind]
        if kind not in allowed:
            raise Refused(field, f"the type {array.dtype} is no {dtype}", self._wanted())
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                made = array.astype(dtype)
            if not np.isfinite(made).all():
                raise Refused(field, f"not finite{_first(~np.isfinite(made))}", _FINITE)
            array = made
        elif dtype.kind != "b":
            whole = np.iinfo(dtype)
            wrong = (array < whole.min) | (array > whole.max)
            if wrong.any():
                raise Refused(field, f"beyond {dtype}{_first(wrong)}", self._wanted())
            array = array.astype(dtype)
        for bound, sign in ((self.low, -1), (self.high, 1)):
            if bound is not None and (wrong := sign * (array - bound) > _ROUNDING).any():
                side = "above its upper" if sign > 0 else "below its lower"
                raise Refused(field, f"{side} bound{_first(wrong)}", _SPACE)
        return array

    def _wanted(self) -> str:
        return f"Send {self.dtype} of shape {self.shape}"


_BOUNDS = {"low": -1, "high": 1}
_ROUNDING = 1e-4
_FINITE = "Send finite numbers only, and act on a sensor that fails"
_SPACE = "Send observations as the environment gives them, in its units"


def _bound(values: Any, shape: tuple[int, ...], sign: int) -> np.ndarray | None:
    """Return a bound of deploy.json, where null is none; None if there is none at all."""
    if values is None:
        return None
    numbers = [sign * np.inf if value is None else float(value) for value in values]
    return np.array(numbers).reshape(shape)


def _first(wrong: np.ndarray) -> str:
    """Return where the first of wrong entries is."""
    return "" if wrong.ndim == 0 else f" at {np.argwhere(wrong)[0].tolist()}"


def parsed(data: bytes | str, field: str = "body") -> dict[str, Any]:
    """Return a JSON object that a client has sent."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(field, "not JSON", "Send a JSON object in UTF-8") from None
    if not isinstance(found, dict):
        raise Refused(field, "not a JSON object", "Send {...}")
    return found


def only(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse fields that have no meaning: a mistyped one would be ignored."""
    for name in given:
        if name not in known:
            shown = printable(name, _LONGEST_SHOWN)
            raise Refused(shown, "no such field", f"Known: {', '.join(known)}")


def number(value: Any, field: str, low: float, high: float) -> float:
    """Return a number between two others."""
    # True counts as a number in Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(field, f"no number from {low:g} to {high:g}", "Send a number")
    return float(value)


def text(value: Any, field: str, longest: int = 64) -> str:
    """Return a short printable text."""
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise Refused(field, f"no printable text of 1 to {longest} characters", "Send a short name")
    return value


def truth(value: Any, field: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise Refused(field, "neither true nor false", "Send true or false")
    return value

"""Elementary functions of one world's number or of many worlds' array, with the same results.

On one number NumPy's functions cost several times as long as those of ``math``, and their last bit
may depend on the processor. So one number goes to ``math``, and so does every entry of an array.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[float], float]


def sin(x: Any) -> Any:
    """Return the sine of an angle [rad].

    Args:
        x: A float, or an array of any shape.

    Returns:
        A float, or an array of that shape; NaN where ``x`` is not finite.
    """
    if not isinstance(x, float):
        return _of_each(sin, math.sin, x)
    try:
        return math.sin(x)
    except ValueError:  # It is infinite.
        return math.nan


def cos(x: Any) -> Any:
    """Return the cosine of an angle [rad]; see ``sin``."""
    if not isinstance(x, float):
        return _of_each(cos, math.cos, x)
    try:
        return math.cos(x)
    except ValueError:
        return math.nan


def exp(x: Any) -> Any:
    """Return e to the power of a float or of each entry of an array; infinity if it is beyond."""
    if not isinstance(x, float):
        return _of_each(exp, math.exp, x)
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _of_each(function: Function, quick: Function, x: Any) -> Any:
    """Return ``function`` of each entry, by way of ``quick``, which may refuse some."""
    if isinstance(x, np.ndarray) and x.ndim == 1:  # The usual case, without what the others need.
        try:
            return np.array(list(map(quick, x.tolist())), np.float64)
        except (ValueError, OverflowError):
            pass
    array = np.asarray(x, np.float64)
    values = [function(value) for value in array.ravel().tolist()]
    return np.array(values, np.float64).reshape(array.shape)

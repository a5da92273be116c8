"""Elementary functions of one world's number or of many worlds' array, with the same results.

On one number NumPy's functions cost several times as long as those of ``math``, and their last bit
may depend on the processor. So one number goes to ``math``, and so does every entry of an array.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def clip(x: Any, low: Any, high: Any) -> NDArray[np.float64]:
    """Return values limited to [low, high]; ``numpy.clip`` takes twice as long on a few."""
    clipped: NDArray[np.float64] = np.minimum(np.maximum(x, low), high)
    return clipped


def sin(x: Any) -> Any:
    """Return the sine of an angle [rad].

    Args:
        x: A float, or an array of any shape.

    Returns:
        A float, or an array of that shape; NaN where ``x`` is not finite.
    """
    return _of_each(math.sin, math.nan, x)


def cos(x: Any) -> Any:
    """Return the cosine of an angle [rad]; see ``sin``."""
    return _of_each(math.cos, math.nan, x)


def exp(x: Any) -> Any:
    """Return e to the power of a float or of each entry of an array; infinity if it overflows."""
    return _of_each(math.exp, math.inf, x)


def _of_each(function: Callable[[float], float], refused: float, x: Any) -> Any:
    """Return ``function`` of a number or of each entry; ``refused`` where it raises an error."""
    if isinstance(x, float):
        try:
            return function(x)
        except (ValueError, OverflowError):
            return refused
    array = np.asarray(x, np.float64)
    numbers = array.ravel().tolist()
    try:
        values = np.fromiter(map(function, numbers), np.float64, len(numbers))
    except (ValueError, OverflowError):
        values = np.array([_of_each(function, refused, number) for number in numbers], np.float64)
    return values.reshape(array.shape)

"""Vectors and the numbers they are made of, for one world and for many."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

Components = list[Any]
"""The entries of a vector, each a float or of shape (n_worlds,)."""


def columns(array: Floats) -> Components:
    """Return ``array[..., i]`` for every ``i`` of the last dimension.

    For one world they are Python floats, which cost a tenth of 0-d arrays in the arithmetic of a
    step and follow the same IEEE 754 rules; for many they are arrays of shape (...).

    Args:
        array: Shape (..., n).
    """
    if array.ndim == 1:
        entries: Components = array.tolist()
        return entries
    return list(array.T if array.ndim == 2 else np.moveaxis(array, -1, 0))

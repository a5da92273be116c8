"""Vectors: their entries, and rotations into the body's frame, for one world and for many."""

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


def sum_of_squares(components: Components) -> Any:
    """Return the sum of the squared components, added from left to right."""
    total: Any = 0.0
    for component in components:
        total = total + component * component
    return total


def rotate(orientation: Components, vector: Components) -> Components:
    """Return a vector of a body's frame in the world frame.

    Args:
        orientation: Components of the body's quaternion (x, y, z, w).
        vector: Three components.
    """
    x, y, z, w = orientation
    a, b, c = vector
    # Twice the cross product of the quaternion's vector part and the vector.
    p = 2.0 * (y * c - z * b)
    q = 2.0 * (z * a - x * c)
    r = 2.0 * (x * b - y * a)
    return [
        a + w * p + (y * r - z * q),
        b + w * q + (z * p - x * r),
        c + w * r + (x * q - y * p),
    ]


def rotate_back(orientation: Components, vector: Components) -> Components:
    """Return a vector of the world frame in a body's frame; the inverse of ``rotate``."""
    x, y, z, w = orientation
    return rotate([-x, -y, -z, w], vector)


def gravity_direction(orientation: Components) -> Components:
    """Return the direction of gravity in a body's frame, a unit vector; (0, 0, -1) when level."""
    x, y, z, w = orientation
    return [
        2.0 * (w * y - x * z),
        -2.0 * (w * x + y * z),
        2.0 * (x * x + y * y) - 1.0,
    ]


def yaw(orientation: Components) -> Any:
    """Return the heading about the vertical [rad] in [-pi, pi]."""
    x, y, z, w = orientation
    return np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))

"""Moments of inertia of shapes, as Bullet computes them for a link of a given mass."""

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.engines.mujoco.meshes import read_mesh
from robots.engines.mujoco.urdf import Geometry, Link

Matrix = NDArray[np.float64]


def of_link(link: Link) -> Matrix | None:
    """Return the moments of a link about the axes of its centre of mass, shape (3,).

    One shape in the middle has its own; others those of the box around them all.

    Returns:
        None for a link without shapes.
    """
    if not link.collisions:
        return None
    middle, turn = np.array(link.centre), matrix(link.turn)
    if len(link.collisions) == 1 and link.collisions[0].kind != "mesh":
        (shape,) = link.collisions
        is_centred = np.allclose(shape.position, middle) and np.allclose(matrix(shape.turn), turn)
        if is_centred:
            return link.mass_kg * of_shape(shape)
    corners = np.concatenate([_corners(shape) for shape in link.collisions])
    edges = np.ptp((corners - middle) @ turn, axis=0)
    moments: Matrix = np.asarray(link.mass_kg * _of_box(0.5 * edges))
    return moments


def of_shape(shape: Geometry) -> Matrix:
    """Return the moments of a shape of 1 kg about its own axes."""
    if shape.kind == "box":
        return _of_box(np.array(shape.size))
    radius = shape.size[0]
    if shape.kind == "sphere":
        return np.full(3, 0.4 * radius * radius)
    half = shape.size[1]
    across = 0.25 * radius * radius + half * half / 3.0
    if shape.kind == "capsule":  # Bullet takes the box around it.
        return _of_box(np.array([radius, radius, half + radius]))
    return np.array([across, across, 0.5 * radius * radius])


def _of_box(half: Matrix) -> Matrix:
    x, y, z = half * half
    return np.array([y + z, x + z, x + y]) / 3.0


def _corners(shape: Geometry) -> Matrix:
    """Return the corners of the box around a shape in the frame of its link, shape (n, 3)."""
    if shape.kind == "mesh":
        assert shape.mesh is not None
        points = read_mesh(shape.mesh)[0] * np.array(shape.size)
        low, high = points.min(axis=0), points.max(axis=0)
    else:
        half = np.array(_half_extents(shape.kind, shape.size))
        low, high = -half, half
    ends = np.array([low, high])
    corners = np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i, j, k in np.ndindex(2, 2, 2)])
    placed: Matrix = corners @ matrix(shape.turn).T + np.array(shape.position)
    return placed


def _half_extents(kind: str, size: Sequence[float]) -> Sequence[float]:
    if kind == "box":
        return size
    radius = size[0]
    half = {"sphere": radius, "cylinder": size[-1], "capsule": size[-1] + radius}[kind]
    return radius, radius, half


def matrix(turn: Sequence[float]) -> Matrix:
    """Return the rotation matrix of a quaternion (w, x, y, z), shape (3, 3)."""
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, np.array(turn, np.float64))
    return flat.reshape(3, 3)

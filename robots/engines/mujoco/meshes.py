"""Reads meshes. Of an .obj with several objects, MuJoCo's own reader loses most."""

from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_STL_HEADER, _STL_FACET = 84, 50
Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]


@lru_cache(maxsize=64)
def read_mesh(path: Path) -> Mesh:
    """Return points of shape (n, 3) and triangles of shape (m, 3) of an .obj or .stl file.

    Raises:
        ValueError: It is neither.
    """
    data = path.read_bytes()
    try:
        mesh = _read_obj(data) if path.suffix.lower() == ".obj" else _read_stl(data)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path}: this is no mesh ({error}).") from error
    points, triangles = mesh
    if not len(triangles) or triangles.min() < 0 or triangles.max() >= len(points):
        raise ValueError(f"{path}: its triangles are not between its points.")
    return mesh


def _read_obj(data: bytes) -> Mesh:
    points, triangles = [], []
    for line in data.splitlines():
        kind, _, rest = line.partition(b" ")
        if kind == b"v":
            points.append(rest.split()[:3])
        elif kind == b"f":
            # Points count from 1, or back from the last one.
            numbers = [int(corner.split(b"/")[0]) for corner in rest.split()]
            corners = [n - 1 if n > 0 else len(points) + n for n in numbers]
            triangles += [(corners[0], *pair) for pair in pairwise(corners[1:])]
    return np.array(points, np.float64), np.array(triangles, np.int64)


def _read_stl(data: bytes) -> Mesh:
    count = int.from_bytes(data[_STL_HEADER - 4 : _STL_HEADER], "little")
    if len(data) == _STL_HEADER + _STL_FACET * count:
        facets = np.frombuffer(data, np.uint8, _STL_FACET * count, _STL_HEADER)
        corners = facets.reshape(-1, _STL_FACET)[:, 12:48].copy().view("<f4").reshape(-1, 3)
    else:  # The kind that is text.
        rows = [line.split()[1:4] for line in data.splitlines() if b"vertex" in line]
        corners = np.array(rows, np.float32)
    points, where = np.unique(corners, axis=0, return_inverse=True)
    return points.astype(np.float64), where.reshape(-1, 3)

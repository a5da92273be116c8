"""A sum tree: draws from many items in proportion to their weights, all draws in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """Sums over an array of weights that somebody else owns.

    A node is the sum of its two children, always added anew, never changed by a difference: a tree
    that is built again from the same weights has the same bits.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        """Take the weights, shape (n,), each at least 0; they are read at the first use."""
        self._weights = weights
        self._size = 1 << max(len(weights) - 1, 1).bit_length()
        self._nodes = np.zeros(2 * self._size)
        self._touched: list[NDArray[np.int64]] | None = None

    @property
    def total(self) -> float:
        """The sum of all weights."""
        self._refresh()
        return float(self._nodes[1])

    def touch(self, items: NDArray[np.int64]) -> None:
        """Note that the weights of some items have changed."""
        if self._touched is not None:
            self._touched.append(items)

    def find(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the items in whose share of [0, total) points fall; none has weight 0."""
        self._refresh()
        nodes, rest = np.ones(len(points), np.int64), points.copy()
        while nodes[0] < self._size:
            left = 2 * nodes
            below = self._nodes[left]
            # Rounding may leave a point beyond a sum, where there is nothing.
            right = (rest >= below) & (self._nodes[left + 1] > 0)
            rest -= np.where(right, below, 0.0)
            nodes = left + right
        return nodes - self._size

    def _refresh(self) -> None:
        """Bring the sums up to date: all of them at first, then those above what has changed."""
        nodes, size, touched = self._nodes, self._size, self._touched
        self._touched = []
        if touched is None:
            nodes[size : size + len(self._weights)] = self._weights
            while size > 1:
                size //= 2
                nodes[size : 2 * size] = nodes[2 * size : 4 * size].reshape(-1, 2).sum(axis=1)
        elif touched:
            items = np.concatenate(touched)
            nodes[size + items] = self._weights[items]
            above = size + items
            while size > 1:
                size, above = size // 2, above // 2
                nodes[above] = nodes[2 * above] + nodes[2 * above + 1]

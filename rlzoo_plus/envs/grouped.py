"""Agents of one world in groups with a policy each: the space of their actions.

A row of the batch is an agent. Its observation is a dictionary with an entry for each group, zeros
but for its own, and `group`, which has a 1 at the place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

GROUP = "group"
KINDS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class GroupedActions(spaces.Box):
    """Actions of any group as numbers side by side, with zeros after those of a smaller one.

    Attributes:
        groups: Spaces of the groups' own actions, in the order of `group` in observations.
    """

    def __init__(self, groups: Mapping[str, spaces.Space[Any]]) -> None:
        """Lay out the actions of groups by name."""
        self.groups = dict(groups)
        width = max(_size(space) for space in self.groups.values())
        low, high = np.zeros(width, np.float32), np.zeros(width, np.float32)
        for space in self.groups.values():
            lowest, highest = _bounds(space)
            low[: len(lowest)] = np.minimum(low[: len(lowest)], lowest)
            high[: len(highest)] = np.maximum(high[: len(highest)], highest)
        super().__init__(low, high, dtype=np.float32)

    def own(self, name: str, row: np.ndarray) -> Any:
        """Return a group's own action, within its bounds, from a row of numbers."""
        space = self.groups[name]
        numbers = row[: _size(space)]
        if isinstance(space, spaces.Box):
            return np.clip(numbers.reshape(space.shape), space.low, space.high).astype(space.dtype)
        lowest, highest = _bounds(space)
        whole = np.clip(np.rint(numbers), lowest, highest).astype(np.int64)
        if isinstance(space, spaces.Discrete):
            return int(whole[0]) + int(space.start)
        start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
        return (whole.reshape(space.shape) + start).astype(space.dtype)


def _size(space: spaces.Space[Any]) -> int:
    return int(np.prod(space.shape or (), dtype=np.int64))


def _bounds(space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest numbers of actions, those of choices from zero."""
    if isinstance(space, spaces.Box):
        return space.low.ravel(), space.high.ravel()
    if isinstance(space, spaces.Discrete):
        highest = np.array([space.n - 1])
    elif isinstance(space, spaces.MultiDiscrete):
        highest = space.nvec.ravel() - 1
    else:
        highest = np.ones(_size(space))
    return np.zeros(len(highest)), highest

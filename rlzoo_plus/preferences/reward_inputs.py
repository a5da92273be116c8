"""What a reward model sees: an observation and an action, each as one row of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.spaces import decode_space, encode_space, parts_of
from rlzoo_plus.errors import ConfigError

# More are pictures, which these networks do not see.
MOST_INPUTS = 4096
_CHOICES = (spaces.Discrete, spaces.MultiDiscrete)
_KNOWN = (*_CHOICES, spaces.Box, spaces.MultiBinary)


@dataclass(frozen=True)
class RewardInputs:
    """The spaces of a task. Numbers are taken before any normalization, choices are one-hot."""

    observation: spaces.Space[Any]
    action: spaces.Space[Any]

    def __post_init__(self) -> None:
        """Refuse what a reward model cannot see."""
        for space in (self.observation, self.action):
            kinds = [type(p).__name__ for p in parts_of(space).values() if type(p) not in _KNOWN]
            if kinds or not 0 < spaces.flatdim(space) <= MOST_INPUTS:
                raise ConfigError(
                    f"a reward model sees up to {MOST_INPUTS} numbers and choices, not "
                    f"{printable(space)}. Use an environment without pictures."
                )

    @classmethod
    def from_data(cls, data: Any) -> RewardInputs:
        """Return the spaces that `data` describes.

        Raises:
            ValueError: It describes none that a reward model can see.
        """
        if not isinstance(data, list) or len(data) != 2:
            raise ValueError("its spaces are malformed")
        try:
            return cls(*map(decode_space, data))
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @property
    def data(self) -> list[dict[str, Any]]:
        """It as JSON data."""
        return [encode_space(self.observation), encode_space(self.action)]

    @property
    def observed(self) -> int:
        """Entries of an observation."""
        return int(spaces.flatdim(self.observation))

    @property
    def size(self) -> int:
        """Entries of an observation and an action."""
        return self.observed + int(spaces.flatdim(self.action))

    def of_observations(self, observations: Any) -> np.ndarray:
        """Return a batch of observations as rows, float32 of shape (n, observed)."""
        return _rows(self.observation, observations)

    def of_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return a batch of actions as rows, float32 of shape (n, size - observed)."""
        return _rows(self.action, actions)


def _rows(space: spaces.Space[Any], values: Any) -> np.ndarray:
    parts = []
    for key, part in parts_of(space).items():
        array = np.asarray(values[key] if isinstance(space, spaces.Dict) else values)
        array = array.reshape(len(array), -1)
        if isinstance(part, _CHOICES):
            counts = np.ravel(part.n if isinstance(part, spaces.Discrete) else part.nvec)
            chosen = array.astype(np.int64) - np.ravel(part.start)
            array = np.hstack([chosen[:, [k]] == np.arange(n) for k, n in enumerate(counts)])
        parts.append(array.astype(np.float32))
    return np.hstack(parts)

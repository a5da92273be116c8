"""What was seen and what a teacher does there: a dataset that grows, of bounded size."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.demonstrations.dataset import Rows, rows_of
from rlzoo_plus.envs.spaces import parts_of


class LabelledRows:
    """Observations with the actions of a teacher; the oldest make room for new ones.

    Checkpoints hold it in chunks, as a replay buffer of Stable-Baselines3.

    Attributes:
        buffer_size: Steps of each environment that it holds at most.
        n_envs: Number of environments.
        pos: Where the next step is written.
        full: Whether all of it is in use.
        observations: As the environment gives them, shape (buffer_size, n_envs, ...).
        actions: Of the teacher, likewise.
    """

    def __init__(
        self,
        size: int,
        n_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        """Allocate room for `size` steps of all environments together."""
        self.buffer_size, self.n_envs = max(size // n_envs, 1), n_envs
        self.pos, self.full = 0, False

        def empty(space: spaces.Space[Any]) -> np.ndarray:
            return np.zeros((self.buffer_size, n_envs, *(space.shape or ())), space.dtype)

        rooms = {key: empty(part) for key, part in parts_of(observation_space).items()}
        self.observations: Rows = rooms.get("", rooms)
        self.actions = empty(action_space)

    def __len__(self) -> int:
        return self.size() * self.n_envs

    def size(self) -> int:
        """Return the number of steps of each environment."""
        return self.buffer_size if self.full else self.pos

    def add(self, observations: Rows, actions: np.ndarray) -> None:
        """Add a step of each environment."""
        if isinstance(self.observations, dict):
            for key, room in self.observations.items():
                room[self.pos] = observations[key]
        else:
            self.observations[self.pos] = observations
        self.actions[self.pos] = actions
        self.pos = (self.pos + 1) % self.buffer_size
        self.full = self.full or self.pos == 0

    def rows(self, numbers: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Return rows by their numbers, each below the length."""
        index = np.divmod(numbers, self.n_envs)
        return rows_of(self.observations, index), self.actions[index]

    def newest(self, count: int) -> np.ndarray:
        """Return the numbers of the rows of the last `count` steps, or of all that there are."""
        steps = (self.pos - 1 - np.arange(min(count, self.size()))) % self.buffer_size
        return (steps[:, None] * self.n_envs + np.arange(self.n_envs)).ravel()

    def truncate_last_trajectory(self) -> None:
        """Do nothing where running episodes are lost: each row stands for itself."""

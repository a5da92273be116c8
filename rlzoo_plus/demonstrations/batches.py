"""Demonstrations as rows for batches: some episodes are held out, the others in random order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.utils import obs_as_tensor

from rlzoo_plus.contracts.protocols import Batch
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration, Rows, joined, rows_of

_AT_ONCE = 4096


class Batches:
    """Rows of demonstrations, prepared once in a process; no part of a run's state.

    Attributes:
        is_ready: Whether they are prepared.
        n_rows: Rows that are learned from.
    """

    def __init__(self) -> None:
        """Initialize without rows."""
        self.is_ready, self.n_rows = False, 0
        self._learned: Batch | None = None
        self._held_out: Batch | None = None
        self._order: tuple[Any, np.ndarray] | None = None

    def prepare(
        self,
        dataset: Dataset,
        held_out: float,
        device: torch.device,
        *,
        normalize: Callable[[Rows], Rows],
        targets: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Bring a dataset into the form of batches.

        Args:
            dataset: The demonstrations.
            held_out: Share of the episodes to hold out, at least one where there are several.
            device: Where batches are.
            normalize: Returns observations as the policy takes them.
            targets: Returns actions as a loss compares them.
        """

        def batch(episodes: Sequence[Demonstration]) -> Batch:
            seen = joined(rows_of(one.observations, slice(one.n_steps)) for one in episodes)
            actions = targets(np.concatenate([one.actions for one in episodes]))
            kind = dataset.action_space.dtype
            tensor = torch.as_tensor(actions.astype(kind), device=device)
            return Batch(obs_as_tensor(normalize(seen), device), tensor)

        episodes = dataset.episodes
        least = int(held_out > 0 and len(episodes) > 1)
        # The last ones: episodes are independent, and each process chooses the same.
        count = max(least, min(round(held_out * len(episodes)), len(episodes) - 1))
        self._learned = batch(episodes[: len(episodes) - count])
        self._held_out = batch(episodes[len(episodes) - count :]) if count else None
        self.is_ready, self.n_rows = True, len(self._learned)

    def next(self, taken: int, size: int, seed: int) -> Batch:
        """Return the batch that comes after `taken` rows; each epoch has an order of its own."""
        assert self._learned is not None
        rows: list[np.ndarray] = []
        while size:
            epoch, at = divmod(taken, self.n_rows)
            rows.append(self._epoch(epoch, seed)[at : at + size])
            taken, size = taken + len(rows[-1]), size - len(rows[-1])
        device = self._learned.actions.device
        return self._learned.select(torch.as_tensor(np.concatenate(rows), device=device))

    def held_out(self) -> Iterator[Batch]:
        """Yield the rows that are not learned from, in order."""
        if self._held_out is None:
            return
        for start in range(0, len(self._held_out), _AT_ONCE):
            yield self._held_out.select(slice(start, start + _AT_ONCE))

    def _epoch(self, epoch: int, seed: int) -> np.ndarray:
        if self._order is None or self._order[0] != (epoch, seed):
            drawn = np.random.default_rng([seed, epoch]).permutation(self.n_rows)
            self._order = (epoch, seed), drawn
        return self._order[1]

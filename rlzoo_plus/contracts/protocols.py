"""What the parts of reinforcement learning promise each other: batches and four protocols.

A part of your own keeps to one of them; `rlzoo_plus.testing.PartsContract` tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

# An array or a tensor with a row for each transition, or a dictionary of such.
Rows = Any


@dataclass(frozen=True)
class Batch:
    """Transitions, a row each, in the order of time where they have one; absent fields are None."""

    observations: Rows
    actions: Rows
    rewards: Rows = None
    dones: Rows = None  # Whether the episode ended with it
    next_observations: Rows = None
    infos: Sequence[Mapping[str, Any]] = ()  # Empty, or one for each row

    def __len__(self) -> int:
        return len(self.actions)

    @classmethod
    def merge(cls, batches: Sequence[Batch]) -> Batch:
        """Return the rows of several batches, one after the other.

        Raises:
            ValueError: There is none, or a field is in some of them only.
        """
        if not batches:
            raise ValueError("there is no batch to merge")
        whole: dict[str, Any] = {}
        for field in fields(cls):
            parts = [getattr(batch, field.name) for batch in batches]
            is_absent = {part is None or (field.name == "infos" and not part) for part in parts}
            if len(is_absent) > 1:
                raise ValueError(f"{field.name}: some of the batches have none")
            whole[field.name] = parts[0] if is_absent == {True} else joined(parts)
        return cls(**whole)

    def select(self, rows: Any) -> Batch:
        """Return some rows, as an index of NumPy or torch chooses them."""
        kept: dict[str, Any] = {
            name: each(part, lambda a: a[rows]) for name, part in self._arrays().items()
        }
        chosen = rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows
        numbers = np.arange(len(self))[chosen] if self.infos else ()
        return Batch(**kept, infos=[self.infos[number] for number in numbers])

    def to(self, device: torch.device | str) -> Batch:
        """Return it as tensors on a device."""
        moved: dict[str, Any] = {
            name: each(part, lambda a: torch.as_tensor(a, device=device))
            for name, part in self._arrays().items()
        }
        return Batch(**moved, infos=self.infos)

    def _arrays(self) -> dict[str, Rows]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "infos"}


def each(rows: Rows, change: Callable[[Any], Any]) -> Rows:
    """Return rows with a function applied to each array of them."""
    if isinstance(rows, Mapping):
        return {key: change(part) for key, part in rows.items()}
    return None if rows is None else change(rows)


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows one after the other."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: joined([part[key] for part in parts]) for key in first}
    if isinstance(first, torch.Tensor):
        return torch.cat(list(parts))
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    return [info for part in parts for info in part]


@runtime_checkable
class RLModule(Protocol):
    """Acts, and says what it expects."""

    def act(self, observations: Rows, *, deterministic: bool = True) -> np.ndarray:
        """Return an action for each observation, within the space of actions."""

    def value(self, observations: Rows, actions: Rows = None) -> np.ndarray:
        """Return the expected return, shape (n,); `actions` None for those that it would choose."""


@runtime_checkable
class ReplayBuffer(Protocol):
    """Keeps transitions to learn from."""

    def add(self, batch: Batch) -> None:
        """Add transitions, with all fields; the oldest make room."""

    def sample(self, size: int) -> Batch:
        """Draw transitions, as tensors; raises ValueError while it is empty."""

    def __len__(self) -> int:
        """Return how many there are."""


@runtime_checkable
class Collector(Protocol):
    """Steps environments."""

    def collect(self) -> Batch:
        """Act for one iteration; return the transitions, those of a step beside each other."""


@runtime_checkable
class Trainer(Protocol):
    """Learns from transitions."""

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Update once; return the losses by name."""

    def eval_step(self, batch: Batch) -> dict[str, float]:
        """Return the losses by name; nothing changes."""

"""A dataset of demonstrations in memory: episodes and spaces, and what is checked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

# Of an array or of a dictionary of arrays, whose first dimension counts steps.
Rows = Any


@dataclass(frozen=True)
class Demonstration:
    """One episode; `observations` has a row more than there are steps: what the last one led to."""

    observations: Rows
    actions: np.ndarray  # Shape (n_steps, *action shape)
    rewards: np.ndarray  # Shape (n_steps,)
    terminated: bool  # Whether it ended for another reason than a limit of its length
    seed: int | None = None  # Of its reset

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        """Sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))


@dataclass(frozen=True)
class Dataset:
    """Episodes of one task."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    episodes: Sequence[Demonstration]
    # What is known of its origin: texts by the names of Minari's metadata
    about: Mapping[str, Any] = field(default_factory=dict)
    rate_hz: float | None = None  # Steps a second, where that is known

    @property
    def n_steps(self) -> int:
        """Number of steps of all episodes."""
        return sum(episode.n_steps for episode in self.episodes)


def rows_of(rows: Rows, index: Any) -> Rows:
    """Return some rows, of each part of a dictionary."""
    if isinstance(rows, dict):
        return {key: part[index] for key, part in rows.items()}
    return rows[index]


def joined(parts: Iterable[Rows]) -> Rows:
    """Return rows after each other."""
    listed = list(parts)
    if isinstance(listed[0], dict):
        return {key: np.concatenate([part[key] for part in listed]) for key in listed[0]}
    return np.concatenate(listed)


def check_episode(dataset: Dataset, number: int) -> None:
    """Raise a ValueError if an episode's arrays are none of the spaces, or have no steps."""
    episode, n_steps = dataset.episodes[number], dataset.episodes[number].n_steps
    if n_steps == 0 or episode.rewards.ndim != 1:
        raise ValueError(f"episode {number} has no steps")
    if not _is_finite(episode.rewards):
        raise ValueError(f"episode {number}: a reward is not finite")
    seen = episode.observations if isinstance(episode.observations, dict) else {"": None}
    wanted = parts_of(dataset.observation_space)
    if seen.keys() != wanted.keys():
        raise ValueError(f"episode {number} has observations of other names than its space")
    for key, space in wanted.items():
        part = episode.observations[key] if key else episode.observations
        _check_rows(f"episode {number}, observations {key}".rstrip(), part, space, n_steps + 1)
    _check_rows(f"episode {number}, actions", episode.actions, dataset.action_space, n_steps)


def _check_rows(what: str, rows: np.ndarray, space: spaces.Space[Any], count: int) -> None:
    shape = (count, *(space.shape or ()))
    if rows.shape != shape:
        raise ValueError(f"{what}: their shape is {rows.shape}, and {shape} is that of {space}")
    if not _is_finite(rows):
        raise ValueError(f"{what}: a number is not finite")
    if (choices := _choices(space)) is not None:
        first, count_of = choices
        inside = (rows >= first) & (rows < first + count_of)
        if rows.dtype.kind not in "iub" or not inside.all():
            raise ValueError(f"{what}: a number is none of {space}")


def _is_finite(rows: np.ndarray) -> bool:
    """Return whether all numbers are finite in single precision, in which networks compute."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(rows.astype(np.float32)).all())


def _choices(space: spaces.Space[Any]) -> tuple[Any, Any] | None:
    """Return the first of the numbers that a space has, and their count; None for other spaces."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return space.start, space.n if isinstance(space, spaces.Discrete) else space.nvec
    return (0, 2) if isinstance(space, spaces.MultiBinary) else None


def require_fit(
    dataset: Dataset, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> None:
    """Check that what was demonstrated is the task that is learned.

    Raises:
        ConfigError: Its spaces are others than those of the environment.
    """
    for what, theirs, ours in (
        ("observation", dataset.observation_space, observation_space),
        ("action", dataset.action_space, action_space),
    ):
        if not is_alike(theirs, ours, bounds=what == "action"):
            raise ConfigError(
                f"the demonstrations are of another task: their {what} space is "
                f"{printable(theirs)}, and that of the environment {printable(ours)}. Use the "
                "environment and the wrappers that they were recorded with."
            )


def is_alike(theirs: spaces.Space[Any], ours: spaces.Space[Any], *, bounds: bool) -> bool:
    """Return whether two spaces have the same kind, parts and shapes; of actions, bounds too."""
    left, right = parts_of(theirs), parts_of(ours)
    if left.keys() != right.keys():
        return False
    for key, one in left.items():
        other = right[key]
        if type(one) is not type(other) or one.shape != other.shape:
            return False
        if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
            edges = zip((one.low, one.high), (other.low, other.high), strict=True)
            if bounds and not all(np.allclose(a, b, rtol=1e-5) for a, b in edges):
                return False
        elif one != other:
            return False
    return True

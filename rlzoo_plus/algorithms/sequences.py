"""Replay buffers that give sequences of steps of one episode, for policies with a memory.

They store what the buffers of Stable-Baselines3 store: `dones` says where an episode ends. A
sequence begins with an empty memory, `burn_in` steps before those that are learned from
(Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning", 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor


class Sequences(NamedTuple):
    """A batch of sequences, time first: `time` steps of `n` sequences, the short ones padded."""

    observations: Any  # (time + 1, n, ...), or a dictionary of such: the last is that after the end
    actions: Tensor  # (time, n, action_dim)
    rewards: Tensor  # (time, n)
    dones: Tensor  # (time, n), 1 where the episode ended, and not for its time limit
    learned: Tensor  # (time, n), true where it is learned from: neither burn-in nor padding


class _Places(NamedTuple):
    """Where in a buffer the steps of a batch are."""

    rows: np.ndarray  # (time, n), of each step; those of padding are of the last step
    envs: np.ndarray  # (n,)
    lengths: np.ndarray  # (n,), steps without padding
    learned: np.ndarray  # (time, n), bool


class _Sampling(ReplayBuffer):
    """Mixin: samples sequences."""

    def __init__(
        self, *args: Any, sequence_length: int = 20, burn_in: int = 10, **kwargs: Any
    ) -> None:
        """Make an empty buffer.

        Args:
            *args: Of Stable-Baselines3's buffer.
            sequence_length: The most steps of a sequence that are learned from.
            burn_in: The most steps before them, which only fill the memory.
            **kwargs: Of Stable-Baselines3's buffer.
        """
        super().__init__(*args, **kwargs)
        self.sequence_length, self.burn_in = sequence_length, burn_in

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Return random sequences, each from a step that is as likely as any other.

        Args:
            batch_size: How many sequences.
            env: Normalises observations and rewards.
        """
        size = self.buffer_size if self.full else self.pos
        firsts = np.random.randint(0, size, size=batch_size)
        return self.sequences(firsts, np.random.randint(0, self.n_envs, size=batch_size), env)

    def sequences(
        self, firsts: np.ndarray, envs: np.ndarray, env: VecNormalize | None = None
    ) -> Sequences:
        """Return the sequences that learn from given steps on.

        Args:
            firsts: The first steps that are learned from, shape (n,), counted from the oldest.
            envs: The environments, shape (n,).
            env: Normalises observations and rewards.
        """
        places = self._places(firsts, envs)
        rows, columns = places.rows, places.envs
        ends = (self.dones * (1 - self.timeouts))[rows, columns]
        return Sequences(
            self._seen(places, env),
            self.to_torch(self.actions[rows, columns]),
            self.to_torch(self._normalize_reward(self.rewards[rows, columns], env)),
            self.to_torch(ends),
            self.to_torch(places.learned),
        )

    def _places(self, firsts: np.ndarray, envs: np.ndarray) -> _Places:
        size = self.buffer_size if self.full else self.pos
        oldest = self.pos if self.full else 0

        def ends(steps: np.ndarray) -> np.ndarray:
            return np.asarray(self.dones[(oldest + steps) % self.buffer_size, envs] != 0)

        # Back to the start of the episode, or of what is stored; forwards to its end.
        back = firsts - 1 - np.arange(self.burn_in)[:, None]
        is_before = (back >= 0) & ~ends(back)
        n_before = np.logical_and.accumulate(is_before, axis=0).sum(axis=0)
        ahead = firsts + np.arange(1, self.sequence_length)[:, None]
        is_after = (ahead < size) & ~ends(ahead - 1)
        n_learned = 1 + np.logical_and.accumulate(is_after, axis=0).sum(axis=0)
        lengths = n_before + n_learned
        times = np.arange(lengths.max())[:, None]
        steps = firsts - n_before + np.minimum(times, lengths - 1)
        learned = (times >= n_before) & (times < lengths)
        return _Places((oldest + steps) % self.buffer_size, envs, lengths, learned)

    def _seen(self, places: _Places, env: VecNormalize | None) -> Any:
        seen: Any = _joined(self.observations, self.next_observations, places)
        normalized: Any = self._normalize_obs(seen, env)
        return self.to_torch(normalized)


class SequenceReplayBuffer(_Sampling):
    """Gives sequences of observations that are one array."""


class DictSequenceReplayBuffer(_Sampling, DictReplayBuffer):
    """Gives sequences of dictionaries of observations."""

    observations: Any
    next_observations: Any

    def _seen(self, places: _Places, env: VecNormalize | None) -> Any:
        parts = {
            key: _joined(part, self.next_observations[key], places)
            for key, part in self.observations.items()
        }
        normalized: Any = self._normalize_obs(parts, env)
        return {key: self.to_torch(part) for key, part in normalized.items()}


def _joined(before: np.ndarray, after: np.ndarray, places: _Places) -> np.ndarray:
    """Return the observations of each step, and those after the last one from there on."""
    last = after[places.rows[-1], places.envs][None]
    seen = before[places.rows, places.envs]
    is_after = np.arange(len(seen))[:, None] >= places.lengths
    shape = (*is_after.shape, *(1,) * (seen.ndim - 2))
    return np.concatenate([np.where(is_after.reshape(shape), last, seen), last])


def over_steps(function: Callable[[Any], Tensor], observations: Any) -> Tensor:
    """Return what a function of a batch gives for each step of sequences.

    Args:
        function: Takes observations of shape (batch, ...) and returns features, (batch, size).
        observations: Shape (time, n, ...), or a dictionary of such.

    Returns:
        Shape (time, n, size).
    """
    is_dict = isinstance(observations, dict)
    parts = observations if is_dict else {"": observations}
    flat = {key: part.flatten(0, 1) for key, part in parts.items()}
    first = next(iter(parts.values()))
    return function(flat if is_dict else flat[""]).reshape(*first.shape[:2], -1)

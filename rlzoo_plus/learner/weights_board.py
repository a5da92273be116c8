"""Memory that both processes share: counters, and the newest weights in a double buffer.

Whoever learns writes weights into the half that nobody reads and then says that it is the newer
one; whoever acts copies the newer half. Neither waits for the other.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

_N_COUNTERS = 16
_HEAD_BYTES = 8 * _N_COUNTERS
# Places of the counters; those of the weights have one for each half.
_WRITTEN, _TAKEN, _UPDATES, _VERSION, _STEP, _CRC = 0, 1, 2, 3, 4, 6


class Board:
    """The shared memory; each counter is written by one of both processes only.

    Attributes:
        descriptor: Its file, which no folder has: it ends with the last process that has it open.
    """

    def __init__(self, n_bytes: int, descriptor: int | None = None) -> None:
        """Make it for weights of so many bytes, or take one that was made.

        Raises:
            ValueError: That one is for other weights.
        """
        size = _HEAD_BYTES + 2 * n_bytes
        descriptor = empty_file() if descriptor is None else descriptor
        if os.fstat(descriptor).st_size == 0:
            os.ftruncate(descriptor, size)
        if os.fstat(descriptor).st_size != size:
            raise ValueError("the weights of both processes are not of the same size")
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, size)
        self._counters = np.frombuffer(memory, np.int64, _N_COUNTERS)
        data = np.frombuffer(memory, np.uint8, offset=_HEAD_BYTES)
        self._halves = (data[:n_bytes], data[n_bytes:])

    @property
    def written(self) -> int:
        """Transitions that the log has."""
        return int(self._counters[_WRITTEN])

    @written.setter
    def written(self, count: int) -> None:
        self._counters[_WRITTEN] = count

    @property
    def taken(self) -> int:
        """Transitions that were learned from."""
        return int(self._counters[_TAKEN])

    @property
    def updates(self) -> int:
        """Gradient steps in all."""
        return int(self._counters[_UPDATES])

    @property
    def version(self) -> int:
        """How often weights were handed over."""
        return int(self._counters[_VERSION])

    def note(self, taken: int, updates: int) -> None:
        """Tell how far learning is."""
        self._counters[_TAKEN], self._counters[_UPDATES] = taken, updates

    def publish(self, weights: bytes, step: int) -> None:
        """Hand over weights; `step` is how many transitions they were made with."""
        following = self.version + 1
        half = following % 2
        self._halves[half][:] = np.frombuffer(weights, np.uint8)
        self._counters[_STEP + half] = step
        self._counters[_CRC + half] = zlib.crc32(weights)
        self._counters[_VERSION] = following

    def take(self, known: int) -> tuple[int, int, bytes] | None:
        """Return version, step and weights if they are newer than version `known`, else None.

        Also None if they were replaced twice while they were copied: the next call gets others.
        """
        version = self.version
        if version == known:
            return None
        half = version % 2
        step, crc = (int(self._counters[place + half]) for place in (_STEP, _CRC))
        weights = self._halves[half].tobytes()
        # The order of another processor's writes is not certain everywhere, so the hash decides.
        return (version, step, weights) if zlib.crc32(weights) == crc else None


def empty_file() -> int:
    """Return the descriptor of a file for a `Board`, before the size of its weights is known."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _acting(agent: Any) -> torch.nn.Module:
    """Return the network that chooses actions: the actor, or what values each action."""
    policy = agent.policy
    names = ("actor", "q_net", "quantile_net")
    found: torch.nn.Module = next(getattr(policy, name) for name in names if hasattr(policy, name))
    return found


def pack_weights(agent: Any) -> bytes:
    """Return all that an agent acts with: its network, and the statistics of its observations."""
    tensors = _acting(agent).state_dict().values()
    arrays = [tensor.detach().cpu().numpy() for tensor in tensors]
    return b"".join(array.tobytes() for array in [*arrays, *_statistics(agent)])


def unpack_weights(agent: Any, weights: bytes) -> None:
    """Let an agent act with the weights of another of the same kind."""
    start = 0
    tensors: Sequence[torch.Tensor] = [*_acting(agent).state_dict().values()]
    with torch.no_grad():
        for tensor in tensors:
            array = tensor.numpy()
            array[...] = _next(weights, start, array)
            start += array.nbytes
    for array in _statistics(agent):
        array[...] = _next(weights, start, array)
        start += array.nbytes


def _next(weights: bytes, start: int, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(weights, like.dtype, like.size, start).reshape(like.shape)


def _statistics(agent: Any) -> list[np.ndarray]:
    """Return the arrays of the running means and variances of the observations, not copies."""
    normalize = agent.get_vec_normalize_env()
    if normalize is None or not normalize.norm_obs:
        return []
    found = normalize.obs_rms
    each = [found[key] for key in sorted(found)] if isinstance(found, dict) else [found]
    return [array for one in each for array in (one.mean, one.var)]

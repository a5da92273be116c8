"""`Samples`: batches of a replay buffer with the numbers of its own `sample`, in fewer copies."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor

from rlzoo_plus.fast.recorded.bit_comparison import bits
from rlzoo_plus.fast.recorded.parts import named

log = logging.getLogger(__name__)
_NAMES = ("observations", "actions", "next_observations", "rewards", "dones", "discounts")
# So many batches are compared with those of the buffer.
_COMPARED = 16


class Samples:
    """Draws batches; the first ones are compared with the buffer's own.

    One bit that differs, and the buffer draws them from then on.
    """

    def __init__(self) -> None:
        self._left = _COMPARED
        self._is_lean = True

    def draw(self, buffer: Any, size: int, normalizer: Any) -> dict[str, Tensor]:
        """Return a batch by name, parts of observations as `named` has them.

        Args:
            buffer: The replay buffer.
            size: Number of transitions.
            normalizer: The `VecNormalize` of the environments, None without one.
        """
        if not (self._is_lean and _is_known(buffer)):
            return _own_batch(buffer, size, normalizer)
        if not self._left:
            return _lean_batch(buffer, size, normalizer)
        self._left -= 1
        before = np.random.get_state()
        found = bits([*_lean_batch(buffer, size, normalizer).items(), *np.random.get_state()])
        np.random.set_state(before)
        batch = _own_batch(buffer, size, normalizer)
        if found != bits([*batch.items(), *np.random.get_state()]):
            log.warning("batches are drawn by the replay buffer: one differs from SB3")
            self._is_lean = False
        return batch


def _is_known(buffer: Any) -> bool:
    return (
        type(buffer) is ReplayBuffer
        and not buffer.optimize_memory_usage
        and buffer.device.type == "cpu"
    )


def _own_batch(buffer: Any, size: int, normalizer: Any) -> dict[str, Tensor]:
    data = buffer.sample(size, env=normalizer)
    batch: dict[str, Tensor] = {}
    for name in _NAMES:
        value = getattr(data, name, None)
        batch |= {} if value is None else named(name, value)
    return batch


def _lean_batch(buffer: Any, size: int, normalizer: Any) -> dict[str, Tensor]:
    rows = np.random.randint(0, buffer.buffer_size if buffer.full else buffer.pos, size=size)
    if buffer.n_envs > 1:
        rows = rows * buffer.n_envs + np.random.randint(0, high=buffer.n_envs, size=(size,))

    def chosen(values: np.ndarray) -> np.ndarray:
        return values.reshape((-1, *values.shape[2:])).take(rows, axis=0)

    observations, following = chosen(buffer.observations), chosen(buffer.next_observations)
    rewards = chosen(buffer.rewards).reshape(-1, 1)
    if normalizer is not None:
        observations, following = map(normalizer.normalize_obs, (observations, following))
        rewards = normalizer.normalize_reward(rewards).astype(np.float32)
    dones = chosen(buffer.dones) * (1 - chosen(buffer.timeouts))
    arrays = (observations, chosen(buffer.actions), following, rewards, dones.reshape(-1, 1))
    return {name: torch.from_numpy(a) for name, a in zip(_NAMES, arrays, strict=False)}

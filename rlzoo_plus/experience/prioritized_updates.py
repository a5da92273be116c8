"""Updates with prioritized replay: the algorithm's own, with another loss of the critics.

An algorithm of Stable-Baselines3 finds its loss among the names of its module. Its `train` is run
with the same code and other names, so nothing of it is written twice or changed for other agents.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.prioritized_replay import PrioritizedReplayBuffer


class PrioritizedUpdates:
    """Mixin for an off-policy algorithm whose replay buffer has priorities."""

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks, and the priorities of what they have learned from.

        Raises:
            ConfigError: The algorithm has a loss of its own.
        """
        plain = super().train  # type: ignore[misc]
        buffer: PrioritizedReplayBuffer = self.replay_buffer  # type: ignore[attr-defined]
        buffer.progress = 1.0 - self._current_progress_remaining  # type: ignore[attr-defined]
        losses = _Losses(buffer)
        names = {"F": losses, "quantile_huber_loss": losses.quantile_huber_loss}
        function = plain.__func__
        train = types.FunctionType(
            function.__code__,
            {**function.__globals__, **names},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        train(self, *args, **kwargs)
        if not buffer.update_priorities():
            raise ConfigError(
                f"algo.replay_buffer={buffer.name}: {type(self).__name__} updates itself in its "
                "own way, and its errors are not known. Leave it out."
            )


class _Losses:
    """Losses of critics that tell the buffer their errors, among the functions of torch."""

    def __init__(self, buffer: PrioritizedReplayBuffer) -> None:
        self._buffer = buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)

    def mse_loss(self, current: Tensor, target: Tensor) -> Tensor:
        """Return the mean squared error with weights; LAP's Huber loss without them."""
        kind = functional.mse_loss if self._buffer.has_weights else functional.smooth_l1_loss
        return self._mean(kind(current, target, reduction="none"), target - current)

    def smooth_l1_loss(self, current: Tensor, target: Tensor) -> Tensor:
        """Return the mean Huber loss."""
        loss = functional.smooth_l1_loss(current, target, reduction="none")
        return self._mean(loss, target - current)

    def quantile_huber_loss(
        self, current: Tensor, target: Tensor, *, sum_over_quantiles: bool = True
    ) -> Tensor:
        """Return the mean quantile regression loss; the error is that of the mean value.

        Args:
            current: Shape (batch_size, n_quantiles), or (batch_size, n_critics, n_quantiles).
            target: Shape (batch_size, n_targets), or (batch_size, 1, n_targets).
            sum_over_quantiles: Whether the losses of the quantiles are added.
        """
        n_quantiles = current.shape[-1]
        levels = (torch.arange(n_quantiles, device=current.device) + 0.5) / n_quantiles
        pairs = target.unsqueeze(-2) - current.unsqueeze(-1)
        huber = functional.smooth_l1_loss(pairs, torch.zeros_like(pairs), reduction="none")
        loss = (levels.unsqueeze(-1) - (pairs.detach() < 0).float()).abs() * huber
        loss = loss.mean(dim=-1)
        loss = loss.sum(dim=-1) if sum_over_quantiles else loss.mean(dim=-1)
        errors = target.mean(dim=-1) - current.mean(dim=-1)
        return self._mean(loss.reshape(len(loss), -1), errors)

    def _mean(self, loss: Tensor, errors: Tensor) -> Tensor:
        """Return the weighted mean of losses of shape (batch_size, n); note the errors."""
        self._buffer.note_errors(errors)
        weights = self._buffer.weights
        return loss.mean() if weights is None else (weights * loss).mean()

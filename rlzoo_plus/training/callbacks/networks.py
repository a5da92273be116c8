"""What networks hold while they learn: histograms of weights, norms of gradients, values.

These callbacks read and draw no random number: a run with them trains as without. They write at
the first iteration after every `every_steps` environment steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from rlzoo_plus.errors import ConfigError

# Values are of as many of the newest transitions.
_NEWEST = 256


class _Regularly(BaseCallback):
    """Writes values every so many environment steps.

    Attributes:
        every_steps: Environment steps between two rows.
    """

    def __init__(self, every_steps: int = 1_000) -> None:
        super().__init__()
        if not isinstance(every_steps, int) or every_steps < 1:
            raise ConfigError(f"every_steps={every_steps!r}: must be a whole number of at least 1.")
        self.every_steps = every_steps
        self._next = every_steps

    def values(self) -> dict[str, Any]:
        """Return what is written, by name."""
        raise NotImplementedError

    def _on_rollout_end(self) -> None:
        step = self.model.num_timesteps
        if step < self._next:
            return
        self._next = (step // self.every_steps + 1) * self.every_steps
        with torch.no_grad():
            values = self.values()
        # Tables on the terminal have no room for tensors.
        hidden = {name: ("stdout",) * isinstance(v, Tensor) for name, v in values.items()}
        for output in self.logger.output_formats:
            output.write(values, hidden, step)

    def _on_step(self) -> bool:
        return True


class Histograms(_Regularly):
    """Callback that writes histograms of weights and of the newest actions to TensorBoard."""

    def __init__(self, every_steps: int = 10_000) -> None:
        super().__init__(every_steps)

    def values(self) -> dict[str, Any]:
        """Return the tensors, whose histograms TensorBoard draws."""
        named = self.model.policy.named_parameters()
        values = {f"weights/{name}": tensor.detach().cpu().clone() for name, tensor in named}
        actions = self.locals.get("actions")
        if isinstance(actions, (np.ndarray, Tensor)):
            values["actions"] = torch.as_tensor(actions).detach().cpu().clone().float()
        return values


class Gradients(_Regularly):
    """Callback that writes the norm of the last update's gradient, for each part of the policy.

    Recorded and plain updates leave the clipped gradient of their last minibatch.
    """

    def values(self) -> dict[str, Any]:
        """Return the norms; nothing before the first update."""
        squares: dict[str, float] = {}
        for name, parameter in self.model.policy.named_parameters():
            if parameter.grad is not None:
                part = ".".join(name.split(".")[:2]) if "." in name else name
                square = float(parameter.grad.detach().double().square().sum())
                squares[part] = squares.get(part, 0.0) + square
        norms = {f"gradients/{part}": square**0.5 for part, square in squares.items()}
        return norms | ({"gradients/all": sum(squares.values()) ** 0.5} if squares else {})


class QValues(_Regularly):
    """Callback that writes mean and standard deviation of what the critic says.

    Off-policy, of the newest 256 transitions in the replay buffer, the smallest of the critics or
    the mean of quantiles; on-policy, of the rollout's state values.
    """

    def values(self) -> dict[str, Any]:
        """Return both numbers; nothing while there are no transitions."""
        model: Any = self.model
        if hasattr(model, "rollout_buffer"):
            return _moments("train/value", model.rollout_buffer.values)
        buffer: Any = getattr(model, "replay_buffer", None)
        size = 0 if buffer is None else buffer.size()
        if not size:
            return {}
        newest = (buffer.pos - 1 - np.arange(min(size, _NEWEST))) % buffer.buffer_size
        observations = _rows(buffer.observations, newest)
        normalize = model.get_vec_normalize_env()
        if normalize is not None:
            observations = normalize.normalize_obs(observations)
        tensors, _ = model.policy.obs_to_tensor(observations)
        actions = torch.as_tensor(buffer.actions[newest, 0], device=model.device)
        return _moments("train/q", _action_values(model, tensors, actions).cpu().numpy())


def _rows(stored: Any, places: np.ndarray) -> Any:
    """Return the transitions at these places, of the first environment."""
    if isinstance(stored, dict):
        return {name: array[places, 0] for name, array in stored.items()}
    return stored[places, 0]


def _action_values(model: Any, observations: Any, actions: Tensor) -> Any:
    if hasattr(model, "critic"):
        found = model.critic(observations, actions)
        # Several critics, or quantiles of shape (batch, critics, quantiles).
        if isinstance(found, (tuple, list)):
            return torch.cat(list(found), dim=1).min(dim=1).values
        return found.mean(dim=tuple(range(1, found.dim())))
    network = getattr(model, "quantile_net", None) or model.q_net
    found = network(observations)
    if found.dim() == 3:  # (batch, quantiles, actions)
        found = found.mean(dim=1)
    return found.gather(1, actions.long().reshape(-1, 1))


def _moments(name: str, values: np.ndarray) -> dict[str, Any]:
    return {f"{name}_mean": float(np.mean(values)), f"{name}_std": float(np.std(values))}

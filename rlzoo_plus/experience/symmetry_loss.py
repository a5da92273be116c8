"""A loss for a policy that acts otherwise in mirrored situations: `algo.symmetry=loss`.

Yu et al., "Learning Symmetric and Low-Energy Locomotion" (2018), equation 3: the squared distance
between what the policy does and the mirror image of what it does in the mirrored observation.
PPO and A2C of Stable-Baselines3 take no other loss, so its gradient is added to theirs just before
each step of the optimizer, on the observations of the same minibatch: that of the sum of both
losses, of which `max_grad_norm` clips the first alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlzoo_plus.errors import ConfigError

WEIGHT = 4.0  # Unless algo.symmetry_weight is set; as in the paper


class SymmetryLoss:
    """Adds the gradient of the loss to that of an agent, before each step of its optimizer."""

    def __init__(
        self,
        agent: Any,
        both_sides: Callable[[Tensor], Tensor],
        reflected: Callable[[Tensor], Tensor],
        weight: float,
    ) -> None:
        """Initialize.

        Args:
            agent: Of an on-policy algorithm.
            both_sides: Returns observations of shape (n, width) and then their mirror images.
            reflected: Returns the mirror images of actions, or of probabilities of choices.
            weight: Of the loss.
        """
        self._agent, self._weight = agent, weight
        self._both_sides, self._reflected = both_sides, reflected
        self.observations: Tensor | None = None  # of the present minibatch

    def asymmetry(self, observations: Tensor) -> Tensor:
        """Return the mean squared distance of actions, or of probabilities, over observations."""
        distribution = self._agent.policy.get_distribution(self._both_sides(observations))
        if isinstance(self._agent.action_space, spaces.Discrete):
            done = distribution.distribution.probs
        else:
            done = distribution.mode()
        one, other = done.chunk(2)
        gap: Tensor = one - self._reflected(other)
        return gap.square().sum(dim=1).mean()

    def add_gradient(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Add the gradient; a hook of the optimizer."""
        assert self.observations is not None
        with torch.enable_grad():
            loss = self.asymmetry(self.observations)
        self._agent.logger.record_mean("train/symmetry_loss", float(loss.detach()))
        groups = optimizer.param_groups
        learned = [p for group in groups for p in group["params"] if p.requires_grad]
        if not loss.requires_grad:
            return  # all of the actor is frozen
        found = torch.autograd.grad(self._weight * loss, learned, allow_unused=True)
        for parameter, gradient in zip(learned, found, strict=True):
            if gradient is not None and parameter.grad is not None:
                parameter.grad += gradient


def attach(agent: Any, loss: SymmetryLoss) -> None:
    """Let a new agent learn with the loss.

    Raises:
        ConfigError: Its policy does not follow a gradient of each minibatch.
    """
    if hasattr(agent, "hessian_vector_product") or not hasattr(agent, "rollout_buffer"):
        raise ConfigError(
            f"algo.symmetry=loss is for ppo and a2c; the policy of {type(agent).__name__} does not "
            "follow gradients of minibatches of a rollout. Use algo.symmetry=augment."
        )
    agent.rollout_buffer.__class__ = _noting(type(agent.rollout_buffer), loss)
    agent.policy.optimizer.register_step_pre_hook(loss.add_gradient)


def _noting(kind: Any, loss: SymmetryLoss) -> type:
    """Return a subclass of a rollout buffer that tells the loss which minibatch is learned from."""

    class NotedRolloutBuffer(kind):  # type: ignore[misc]
        def get(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            """Yield the batches of a rollout."""
            for batch in super().get(*args, **kwargs):
                loss.observations = batch.observations
                yield batch

    return NotedRolloutBuffer

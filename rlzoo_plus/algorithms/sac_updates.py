"""What the updates of this package's variants of Soft Actor-Critic have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor, nn

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
else:
    OffPolicyAlgorithm = object


class SacUpdates(OffPolicyAlgorithm):
    """Mixin for an off-policy algorithm with an entropy: it comes before it.

    Attributes:
        log_ent_coef: Logarithm of the weight of the entropy where it is learned, else None.
        ent_coef_optimizer: Its optimizer.
        ent_coef_tensor: The weight where it is fixed.
    """

    target_entropy: str | float
    target_update_interval: int
    log_ent_coef: Tensor | None
    ent_coef_optimizer: torch.optim.Adam | None
    ent_coef_tensor: Tensor

    @abstractmethod
    def networks(self) -> tuple[Any, Any, nn.Module]:
        """Return actor, critics and target critics; the first two have an optimizer."""

    @abstractmethod
    def update(self, batch: Any) -> dict[str, float]:
        """Update entropy weight, critics and actor with a batch; return what is logged."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Do some updates.

        Args:
            gradient_steps: How many.
            batch_size: Size of the batch of each, as the replay buffer counts.
        """
        self.policy.set_training_mode(True)
        actor, critic, target = self.networks()
        optimizers = [actor.optimizer, critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimizers.append(self.ent_coef_optimizer)
        self._update_learning_rate(optimizers)
        found: dict[str, list[float]] = {}
        for step in range(gradient_steps):
            assert self.replay_buffer is not None
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            for name, value in self.update(batch).items():
                found.setdefault(name, []).append(value)
            if step % self.target_update_interval == 0:
                polyak_update(critic.parameters(), target.parameters(), self.tau)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in found.items():
            self.logger.record(f"train/{name}", np.mean(values))

    def entropy_weight(self, entropy: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the weight of the entropy before its own update, and what is logged.

        Args:
            entropy: Of the policy, an estimate for each sample, without gradients.
        """
        if self.log_ent_coef is None or self.ent_coef_optimizer is None:
            return self.ent_coef_tensor, {"ent_coef": self.ent_coef_tensor.item()}
        weight = self.log_ent_coef.detach().exp()
        assert isinstance(self.target_entropy, float)
        loss = (self.log_ent_coef * (entropy - self.target_entropy)).mean()
        descend(self.ent_coef_optimizer, loss)
        return weight, {"ent_coef": weight.item(), "ent_coef_loss": loss.item()}


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step of an optimizer against the gradient of a loss, by its own parameters alone."""
    groups = optimizer.param_groups
    own = [part for group in groups for part in group["params"] if part.requires_grad]
    optimizer.zero_grad()
    if own:
        loss.backward(inputs=own)  # type: ignore[no-untyped-call]
    optimizer.step()

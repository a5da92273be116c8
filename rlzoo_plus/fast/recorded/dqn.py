"""The updates of DQN and QR-DQN from recordings: the numbers that `train` computes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch writes it

from rlzoo_plus.fast.recorded.off_policy import OffPolicyUpdate, mean_of
from rlzoo_plus.fast.recorded.optimizers import Polyak
from rlzoo_plus.fast.recorded.quantiles import quantile_huber_loss


class DQNUpdate(OffPolicyUpdate):
    """The update of DQN."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._critic = self._steps_of(agent.policy.optimizer, agent.policy)

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        return (self.agent.max_grad_norm is None,)

    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the network; return its loss."""
        loss = self._loss(batch, numbers)
        clips = self.agent.max_grad_norm is not None
        self._step(self._critic, loss, numbers, clips=clips)
        return [loss.detach()]

    def _loss(self, batch: SimpleNamespace, numbers: SimpleNamespace) -> Tensor:
        agent = self.agent
        with torch.no_grad():
            values, _ = agent.q_net_target(batch.next_observations).max(dim=1)
            target = self._target(batch, numbers, values.reshape(-1, 1))
        current = agent.q_net(batch.observations)
        current = torch.gather(current, dim=1, index=batch.actions.long())
        return F.smooth_l1_loss(current, target)

    def make(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Do what DQN's `train` does."""
        agent = self.agent
        agent._update_learning_rate(agent.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            batch = self._sample(batch_size)
            numbers, steps = {"gamma": agent.gamma}, [self._critic]
            (loss,) = self._run(batch, numbers, steps, (), agent.max_grad_norm)
            losses.append(loss)
        self._critic.publish()
        agent._n_updates += gradient_steps
        agent.logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        agent.logger.record("train/loss", mean_of(losses))


class QRDQNUpdate(DQNUpdate):
    """The update of QR-DQN."""

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        return *super()._structure(gradient_steps), self.agent.n_quantiles

    def _loss(self, batch: SimpleNamespace, numbers: SimpleNamespace) -> Tensor:
        agent = self.agent
        shape = len(batch.actions), agent.n_quantiles, 1
        with torch.no_grad():
            following = agent.quantile_net_target(batch.next_observations)
            greedy = following.mean(dim=1, keepdim=True).argmax(dim=2, keepdim=True).expand(shape)
            following = following.gather(dim=2, index=greedy).squeeze(dim=2)
            target = self._target(batch, numbers, following)
        current = agent.quantile_net(batch.observations)
        actions = batch.actions[..., None].long().expand(shape)
        current = torch.gather(current, dim=2, index=actions).squeeze(dim=2)
        return quantile_huber_loss(current, target, sums=True)

"""The update of CrossQ from recordings: no target network, critics with `BatchRenorm`.

Each of these layers counts its batches in a tensor and normalises otherwise after a warm-up. A
recording is for one side of that boundary, which is looked up before each update.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from sb3_contrib.common.torch_layers import BatchRenorm
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlzoo_plus.fast.recorded.off_policy import SACUpdate
from rlzoo_plus.fast.recorded.optimizers import Polyak


class CrossQUpdate(SACUpdate):
    """The update of CrossQ."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._of_actor, self._of_critic = (
            [module for module in part.modules() if isinstance(module, BatchRenorm)]
            for part in (agent.actor, agent.critic)
        )
        self._layers = [*self._of_actor, *self._of_critic]
        self.buffers = [buffer for layer in self._layers for buffer in layer.buffers()]

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        moves = [self._moves(number + 1) for number in range(gradient_steps)]
        parts = (self._of_actor, sum(moves)), (self._of_critic, gradient_steps)
        ends = [(layer, ahead) for part, n in parts for layer in part for ahead in (0, n - 1)]
        phases = [_is_warm(layer, max(ahead, 0)) for layer, ahead in ends]
        return *super()._structure(gradient_steps), frozenset(moves), *phases

    def _moves(self, ahead: int) -> bool:
        """Return whether an update so many ahead moves the actor."""
        agent = self.agent
        return bool((agent._n_updates + ahead) % agent.policy_delay == 0)

    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the critic, and where it is due, entropy coefficient and actor; return losses."""
        moves, *phases = self.variant
        agent, learns = self.agent, self._entropy is not None
        counters: list[Any] = [layer.steps for layer in self._layers]
        with _KnownPhases(counters, phases):
            if agent.use_sde:
                agent.actor.reset_noise()
            batch.ent_coef = torch.exp(agent.log_ent_coef.detach()) if learns else batch.ent_coef
            loss, coefficient = self._step_critic(batch, numbers), [batch.ent_coef] * learns
            more = self._step_actor(batch, numbers) if moves else []
            return [loss, *coefficient, *more, *self._noise()]

    def _step_critic(self, batch: SimpleNamespace, numbers: SimpleNamespace) -> Tensor:
        """Step the critic by one pass of observations and next observations; return its loss."""
        actor, critic = self.agent.actor, self.agent.critic
        actor.set_bn_training_mode(False)
        with torch.no_grad():
            next_actions, next_log_prob = actor.action_log_prob(batch.next_observations)
        observations = torch.cat([batch.observations, batch.next_observations], dim=0)
        actions = torch.cat([batch.actions, next_actions], dim=0)
        critic.set_bn_training_mode(True)
        values = torch.cat(critic(observations, actions), dim=1)
        critic.set_bn_training_mode(False)
        current, following = torch.split(values, len(batch.actions), dim=0)
        with torch.no_grad():
            entropy = batch.ent_coef * next_log_prob.reshape(-1, 1)
            target = self._next_target(batch, numbers, [following.detach()], entropy)
        loss = self._critic_loss(current.T[..., None], target)
        self._step(self._critic, loss, numbers)
        return loss.detach()

    def _step_actor(self, batch: SimpleNamespace, numbers: SimpleNamespace) -> list[Tensor]:
        """Step the entropy coefficient and the actor; return the losses, the actor's first."""
        actor = self.agent.actor
        actor.set_bn_training_mode(True)
        actions, log_prob = actor.action_log_prob(batch.observations)
        log_prob = log_prob.reshape(-1, 1)
        actor.set_bn_training_mode(False)
        steps = [] if self._entropy is None else [self._entropy]
        logged = [self._step_entropy(one, log_prob, numbers) for one in steps]
        value = self._value(self.agent.critic(batch.observations, actions))
        loss = (batch.ent_coef * log_prob - value).mean()
        self._step(self._actor, loss, numbers)
        return [loss.detach(), *logged]

    def make(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Do what CrossQ's `train` does."""
        numbers, fixed, entropy = self._begin()
        always, sometimes, n = [], [], 1 + len(entropy)  # a loss, and what the entropy has
        noise: Sequence[Tensor] = ()
        for _ in range(gradient_steps):
            moves = self._moves(1)
            self.agent._n_updates += 1
            self.variant = moves, *map(_is_warm, self._layers)
            steps = [self._critic, *([*entropy, self._actor] if moves else [])]
            results = self._run(self._sample(batch_size, **fixed), numbers, steps)
            always.append(results[:n])
            if moves:
                sometimes.append(results[n : 2 * n])
            noise = results[n * (1 + moves) :]
        for layer in self._layers:
            layer.training = False
        critic, *coefficients = zip(*always, strict=True)
        actor, *losses = zip(*sometimes, strict=True) if sometimes else [()]
        self._end(noise, actor, critic, *(losses or [()]), *coefficients)


def _is_warm(layer: BatchRenorm, ahead: int = 0) -> bool:
    """Return whether a layer's warm-up is over, now or so many batches ahead."""
    count: Any = layer.steps
    return int(count) + ahead > layer.warmup_steps


class _KnownPhases(TorchFunctionMode):
    """Tells `BatchRenorm` whether its warm-up is over, without a look at its counter."""

    def __init__(self, counters: Sequence[Tensor], phases: Sequence[bool]) -> None:
        super().__init__()
        self._known = dict(zip(map(id, counters), phases, strict=True))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.gt and id(args[0]) in self._known:  # as `>` arrives here
            return self._known[id(args[0])]
        return func(*args, **(kwargs or {}))

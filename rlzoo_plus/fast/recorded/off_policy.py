"""The updates of SAC, TQC and TD3 from recordings: the numbers that `train` computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch writes it

from rlzoo_plus.fast.recorded.bit_comparison import learned_tensors
from rlzoo_plus.fast.recorded.optimizers import FlatSteps, PlainSteps, Polyak, make_steps
from rlzoo_plus.fast.recorded.parts import joined, named
from rlzoo_plus.fast.recorded.quantiles import quantile_huber_loss
from rlzoo_plus.fast.recorded.recorded_updates import Update
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

_OF_A_BATCH = ("observations", "actions", "next_observations", "rewards", "dones", "discounts")


class OffPolicyUpdate(Update):
    """What algorithms with a replay buffer share.

    Attributes:
        variant: What else than its arguments decides which calls `update` makes.
        buffers: What `update` changes beside optimizers and target networks.
    """

    variant: Any = None
    buffers: Sequence[Tensor] = ()

    def kind(self, gradient_steps: int, batch_size: int = 0) -> Any:
        """Return what decides which calls are made."""
        return batch_size, *self._structure(gradient_steps)

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        return ()

    def _steps_of(self, optimizer: Any, module: Any) -> FlatSteps:
        """Return what makes the steps of an optimizer of a network."""
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        parameters = [p for p in learned if p.requires_grad]
        own = {id(p) for p in module.parameters()}
        if not all(id(p) in own for p in parameters):
            raise NotRecordableError("an optimizer has parameters of another network")
        return self._recorded(self._make_steps(optimizer, parameters, f"steps{len(self.steps)}"))

    def _make_steps(self, *arguments: Any) -> PlainSteps:
        return make_steps(*arguments)

    def _recorded(self, steps: PlainSteps) -> FlatSteps:
        """Return steps that can be a part of a recording."""
        if not isinstance(steps, FlatSteps):
            kind = type(steps.optimizer).__name__
            raise NotRecordableError(f"{kind} is not one of the optimizers that can be, or not so")
        self.steps.append(steps)
        return steps

    def _step(
        self, steps: FlatSteps, loss: Tensor, numbers: SimpleNamespace, *, clips: bool = False
    ) -> None:
        """Make a step of an optimizer."""
        gradients = torch.autograd.grad(loss, list(steps.parameters))
        with torch.no_grad():
            steps.apply(gradients, numbers, clips=clips)

    def _sample(self, batch_size: int, **more: Tensor) -> dict[str, Tensor]:
        """Return a batch from the replay buffer, by name."""
        agent = self.agent
        data = agent.replay_buffer.sample(batch_size, env=agent._vec_normalize_env)
        batch: dict[str, Tensor] = {}
        for name in _OF_A_BATCH:
            value = getattr(data, name, None)
            batch |= {} if value is None else named(name, value)
        return batch | more

    def _run(
        self,
        batch: Mapping[str, Tensor],
        numbers: dict[str, Any],
        steps: Sequence[FlatSteps],
        polyaks: Sequence[Polyak] = (),
        max_norm: float | None = None,
    ) -> Sequence[Tensor]:
        """Make the calls of `update`, and return what it does.

        Args:
            batch: The batch.
            numbers: For the function.
            steps: Those that it makes, in their order.
            polyaks: Target networks that it moves.
            max_norm: The norm to which gradients are clipped.
        """
        numbers = dict(numbers)  # another call may make other steps
        for one in steps:
            one.begin()
            numbers |= one.next_numbers(max_norm)
        tape = self._tape(batch, tuple(numbers), steps, polyaks)
        return tape.run(list(batch.values()), numbers)

    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Make the steps of a batch, and return what is logged of it."""
        raise NotImplementedError

    def _tape(
        self,
        batch: Mapping[str, Tensor],
        numbers: Sequence[str],
        steps: Sequence[FlatSteps],
        polyaks: Sequence[Polyak],
    ) -> Tape:
        """Return the recording of `update`."""
        key = self.variant, len(polyaks), tuple((n, t.shape) for n, t in batch.items())
        if key not in self._tapes:
            names = list(batch)

            def of_inputs(inputs: Sequence[Tensor], numbers: SimpleNamespace) -> Sequence[Tensor]:
                given = as_batch(zip(names, inputs, strict=True))
                return self.update(given, numbers, polyaks)

            owners: list[Any] = [*steps, *polyaks]
            changed = [*self.buffers, *(t for one in owners for t in one.changed)]
            readable = [*self._readable(), *(t for one in polyaks for t in one.readable)]
            inputs = list(batch.values())
            self._tapes[key] = Tape(
                *(of_inputs, inputs, numbers, readable, changed), by_onednn=self.by_onednn
            )
        return self._tapes[key]

    def _readable(self) -> list[Tensor]:
        """Return what `update` reads beside its arguments."""
        return list(learned_tensors(self.agent).values())

    def _move(self, polyaks: Sequence[Polyak], numbers: SimpleNamespace) -> None:
        """Move target networks."""
        with torch.no_grad():
            for polyak in polyaks:
                polyak.apply(numbers.tau, numbers.rest)

    def _target(self, batch: SimpleNamespace, numbers: SimpleNamespace, value: Tensor) -> Tensor:
        """Return rewards and discounted values of the next observations."""
        discounts = numbers.gamma if batch.discounts is None else batch.discounts
        target: Tensor = batch.rewards + (1 - batch.dones) * discounts * value
        return target


class SACUpdate(OffPolicyUpdate):
    """The update of SAC."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._actor = self._steps_of(agent.actor.optimizer, agent.actor)
        self._critic = self._steps_of(agent.critic.optimizer, agent.critic)
        self._entropy: FlatSteps | None = None
        if agent.ent_coef_optimizer is not None:
            steps = make_steps(agent.ent_coef_optimizer, [agent.log_ent_coef], "entropy")
            self._entropy = self._recorded(steps)
        if target := getattr(agent, "critic_target", None):  # CrossQ has none
            critic = list(agent.critic.parameters())
            self._polyak = Polyak(self._critic, critic, list(target.parameters()))

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        agent = self.agent
        return agent.use_sde, agent.ent_coef_optimizer is None

    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the entropy coefficient, the critic and the actor; return what is logged of it."""
        agent, entropy_steps = self.agent, self._entropy
        actor, logged = agent.actor, []
        if agent.use_sde:
            actor.reset_noise()
        actions, log_prob = actor.action_log_prob(batch.observations)
        log_prob = log_prob.reshape(-1, 1)
        if entropy_steps is None:
            ent_coef = batch.ent_coef
        else:
            ent_coef = torch.exp(agent.log_ent_coef.detach())
            logged = [self._step_entropy(entropy_steps, log_prob, numbers), ent_coef]
        with torch.no_grad():
            next_actions, next_log_prob = actor.action_log_prob(batch.next_observations)
            values = agent.critic_target(batch.next_observations, next_actions)
            entropy = ent_coef * next_log_prob.reshape(-1, 1)
            target = self._next_target(batch, numbers, values, entropy)
        current = agent.critic(batch.observations, batch.actions)
        critic_loss = self._critic_loss(current, target)
        self._step(self._critic, critic_loss, numbers)
        value = self._value(agent.critic(batch.observations, actions))
        loss = (ent_coef * log_prob - value).mean()
        noise = self._noise()
        self._step(self._actor, loss, numbers)
        self._move(polyaks, numbers)
        return [loss.detach(), critic_loss.detach(), *logged, *noise]

    def _step_entropy(self, steps: FlatSteps, log_prob: Tensor, numbers: SimpleNamespace) -> Tensor:
        """Step the entropy coefficient, and return its loss."""
        surplus = (log_prob + numbers.target_entropy).detach()
        loss: Tensor = -(self.agent.log_ent_coef * surplus).mean()
        self._step(steps, loss, numbers)
        return loss.detach()

    def _noise(self) -> list[Tensor]:
        """Return the matrices of gSDE's noise, if the actor has them."""
        if not self.agent.use_sde:
            return []
        distribution = self.agent.actor.action_dist
        matrices = distribution.exploration_mat, distribution.exploration_matrices
        return [matrix.detach() for matrix in matrices]

    def _next_target(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, values: Any, entropy: Tensor
    ) -> Tensor:
        value, _ = torch.min(torch.cat(values, dim=1), dim=1, keepdim=True)
        return self._target(batch, numbers, value - entropy)

    def _critic_loss(self, current: Any, target: Tensor) -> Tensor:
        losses = sum(F.mse_loss(value, target) for value in current)
        assert isinstance(losses, Tensor)
        return 0.5 * losses

    def _value(self, values: Any) -> Tensor:
        return torch.min(torch.cat(values, dim=1), dim=1, keepdim=True)[0]

    def make(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Do what SAC's `train` does."""
        agent, logged = self.agent, []
        noise: Sequence[Tensor] = ()
        numbers, fixed, entropy = self._begin()
        order, n_logged = [*entropy, self._critic, self._actor], 2 + 2 * len(entropy)
        for step in range(gradient_steps):
            batch = self._sample(batch_size, **fixed)
            moves = step % agent.target_update_interval == 0
            polyaks = [self._polyak] if moves else []
            results = self._run(batch, numbers, order, polyaks)
            logged.append(results[:n_logged])
            noise = results[n_logged:]
            if moves and agent.batch_norm_stats:
                polyak_update(agent.batch_norm_stats, agent.batch_norm_stats_target, 1.0)
        agent._n_updates += gradient_steps
        self._end(noise, *zip(*logged, strict=True))

    def _begin(self) -> tuple[dict[str, Any], dict[str, Tensor], list[FlatSteps]]:
        """Set the learning rates; return numbers, inputs and steps of the entropy coefficient."""
        agent, entropy = self.agent, [] if self._entropy is None else [self._entropy]
        optimizers = [agent.actor.optimizer, agent.critic.optimizer]
        optimizers += [agent.ent_coef_optimizer] if entropy else []
        agent._update_learning_rate(optimizers)
        numbers: dict[str, Any] = {"gamma": agent.gamma, "tau": agent.tau, "rest": 1 - agent.tau}
        numbers["target_entropy"] = float(agent.target_entropy)
        return numbers, {} if entropy else {"ent_coef": agent.ent_coef_tensor}, entropy

    def _end(
        self,
        noise: Sequence[Tensor],
        actor: Sequence[Tensor],
        critic: Sequence[Tensor],
        entropy: Sequence[Tensor] = (),
        coefficients: Sequence[Tensor] = (),
    ) -> None:
        """Complete the optimizers' own state and the noise of gSDE; log losses, coefficients."""
        agent, logger = self.agent, self.agent.logger
        for one in self.steps:
            one.publish()
        if agent.use_sde:
            distribution = agent.actor.action_dist
            distribution.exploration_mat, distribution.exploration_matrices = noise
        fixed = [] if coefficients else [float(agent.ent_coef_tensor)] * len(critic)
        logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        logger.record("train/ent_coef", np.mean(fixed) if fixed else mean_of(coefficients))
        if actor:
            logger.record("train/actor_loss", mean_of(actor))
        logger.record("train/critic_loss", mean_of(critic))
        if entropy:
            logger.record("train/ent_coef_loss", mean_of(entropy))


class TQCUpdate(SACUpdate):
    """The update of TQC."""

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        dropped = self.agent.top_quantiles_to_drop_per_net
        return *super()._structure(gradient_steps), dropped

    def _next_target(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, values: Any, entropy: Tensor
    ) -> Tensor:
        agent = self.agent
        n_dropped = agent.top_quantiles_to_drop_per_net * agent.critic.n_critics
        quantiles, _ = torch.sort(values.reshape(len(batch.rewards), -1))
        quantiles = quantiles[:, : agent.critic.quantiles_total - n_dropped]
        target = self._target(batch, numbers, quantiles - entropy)
        target.unsqueeze_(dim=1)
        return target

    def _critic_loss(self, current: Any, target: Tensor) -> Tensor:
        return quantile_huber_loss(current, target, sums=False)

    def _value(self, values: Any) -> Tensor:
        mean: Tensor = values.mean(dim=2).mean(dim=1, keepdim=True)
        return mean


class TD3Update(OffPolicyUpdate):
    """The update of TD3 and DDPG."""

    is_of_all_kinds = True  # They have recordings of their own.

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._actor = self._steps_of(agent.actor.optimizer, agent.actor)
        self._critic = self._steps_of(agent.critic.optimizer, agent.critic)
        self._targets = [
            Polyak(steps, list(network.parameters()), list(target.parameters()))
            for steps, network, target in (
                (self._critic, agent.critic, agent.critic_target),
                (self._actor, agent.actor, agent.actor_target),
            )
        ]

    def _structure(self, gradient_steps: int) -> tuple[Any, ...]:
        # The actor's optimizer has no state before its first step, which is recorded then.
        agent = self.agent
        numbers = range(agent._n_updates + 1, agent._n_updates + gradient_steps + 1)
        return (any(number % agent.policy_delay == 0 for number in numbers),)

    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the critic, and where target networks move, the actor; return the losses."""
        agent = self.agent
        with torch.no_grad():
            noise = batch.actions.clone().normal_(0, numbers.noise)
            noise = noise.clamp(numbers.noise_low, numbers.noise_high)
            next_actions = (agent.actor_target(batch.next_observations) + noise).clamp(-1, 1)
            values = agent.critic_target(batch.next_observations, next_actions)
            value, _ = torch.min(torch.cat(values, dim=1), dim=1, keepdim=True)
            target = self._target(batch, numbers, value)
        current = agent.critic(batch.observations, batch.actions)
        loss = sum(F.mse_loss(value, target) for value in current)
        assert isinstance(loss, Tensor)
        self._step(self._critic, loss, numbers)
        logged = [loss.detach()]
        if polyaks:
            actions = agent.actor(batch.observations)
            loss = -agent.critic.q1_forward(batch.observations, actions).mean()
            self._step(self._actor, loss, numbers)
            self._move(polyaks, numbers)
            logged.append(loss.detach())
        return logged

    def make(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Do what TD3's `train` does."""
        agent = self.agent
        agent._update_learning_rate([agent.actor.optimizer, agent.critic.optimizer])
        clip = agent.target_noise_clip
        numbers: dict[str, Any] = {"gamma": agent.gamma, "noise": agent.target_policy_noise}
        numbers |= {"noise_low": -clip, "noise_high": clip}
        numbers |= {"tau": agent.tau, "rest": 1 - agent.tau}
        critic_losses, actor_losses = [], []
        for _ in range(gradient_steps):
            agent._n_updates += 1
            batch = self._sample(batch_size)
            moves = agent._n_updates % agent.policy_delay == 0
            steps = [self._critic, self._actor] if moves else [self._critic]
            polyaks = self._targets if moves else []
            loss, *more = self._run(batch, numbers, steps, polyaks)
            critic_losses.append(loss)
            actor_losses += more
            for part in ("critic", "actor") if moves else ():
                if source := getattr(agent, f"{part}_batch_norm_stats"):
                    polyak_update(source, getattr(agent, f"{part}_batch_norm_stats_target"), 1.0)
        for one in self.steps:
            one.publish()
        logger = agent.logger
        logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        if actor_losses:
            logger.record("train/actor_loss", mean_of(actor_losses))
        logger.record("train/critic_loss", mean_of(critic_losses))


def as_batch(named: Iterable[tuple[str, Tensor]]) -> SimpleNamespace:
    """Return a batch by attributes; `discounts` is None if it has none."""
    return SimpleNamespace(**{"discounts": None, **joined(named)})


def mean_of(values: Sequence[Tensor]) -> Any:
    """Return the mean as SB3 computes it: of numbers, in double precision."""
    if len(values) == 1:
        return np.float64(0.0 + values[0].item())  # as a sum: -0.0 becomes 0.0
    return np.mean(torch.stack([value.reshape(()) for value in values]).tolist())

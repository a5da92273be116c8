"""The updates of SAC, TQC and TD3 with hand-written gradients and all critics in one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor
from torch import Tensor

from rlzoo_plus.fast.handwritten.actors import actor_of
from rlzoo_plus.fast.handwritten.adam_steps import FastPolyak, FusedAdam, make_fast_steps
from rlzoo_plus.fast.handwritten.checks import require_same_gradients
from rlzoo_plus.fast.handwritten.layers import Ensemble, Gradients, Perceptron
from rlzoo_plus.fast.handwritten.products import full_precision
from rlzoo_plus.fast.recorded.known_code import name_of
from rlzoo_plus.fast.recorded.off_policy import (
    OffPolicyUpdate,
    SACUpdate,
    TD3Update,
    TQCUpdate,
    as_batch,
)
from rlzoo_plus.fast.recorded.optimizers import FlatSteps, PlainSteps, Polyak
from rlzoo_plus.fast.recorded.tape import NotRecordableError


def _in(module: str, policy: str) -> tuple[str, ...]:
    """Return names of policies; their module is not imported where they are not used."""
    return f"{module}.{policy}", f"{module}.MultiInputPolicy"


class _FastOffPolicy(OffPolicyUpdate):
    """What SAC, TQC and TD3 share: critics as one batch, and rows of observations.

    Attributes:
        can_round: Whether products of large layers may be made in bfloat16.
        policies: Names of those whose forward pass is known.
    """

    can_round = True
    policies: Sequence[str]
    _critic: Any
    _critic_targets: Ensemble

    def __init__(self, agent: Any, *, rounds: bool = False) -> None:
        """Find actor and critics, whose weights become views of flat tensors.

        Args:
            agent: Is updated.
            rounds: Whether products of large layers are made in bfloat16.

        Raises:
            NotRecordableError: They are of another kind.
        """
        super().__init__(agent)
        _require_known(agent, self.policies)
        self._begun = False
        self._by_autograd: list[Sequence[Tensor]] = []
        self._critics = Ensemble(agent.critic.q_networks, rounds=rounds)
        if not isinstance(self._critic, FusedAdam) or len(self._critic.parameters) != len(
            list(agent.critic.parameters())
        ):
            raise NotRecordableError("the critics' optimizer is not Adam, or a part is frozen")
        self._critic.places = self._critics.of_flat(self._critic.gradient)
        self._width = int(agent.critic.features_extractor.features_dim)

    def _make_steps(self, *arguments: Any) -> PlainSteps:
        return make_fast_steps(*arguments)

    def _step(
        self, steps: FlatSteps, loss: Tensor, numbers: SimpleNamespace, *, clips: bool = False
    ) -> None:
        """Keep the gradients by autograd, for comparison."""
        self._by_autograd.append(torch.autograd.grad(loss, list(steps.parameters)))

    def _gradients_by_autograd(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak] = ()
    ) -> list[Sequence[Tensor]]:
        """Return the gradients of each step; none is made."""
        self._by_autograd = []
        with torch.enable_grad():
            super().update(batch, numbers, polyaks)
        return self._by_autograd

    def _rows(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return what the features extractor gives: a row of numbers for each observation."""
        dtype = self._critics.layers[0][0].dtype
        if isinstance(observations, Tensor):
            return observations.flatten(1).to(dtype)
        parts = self.agent.critic.features_extractor.extractors
        return torch.cat([observations[name].flatten(1).to(dtype) for name in parts], 1)

    def _run(
        self,
        batch: Mapping[str, Tensor],
        numbers: dict[str, Any],
        *others: Any,
    ) -> Sequence[Tensor]:
        """Make the calls of `update`, after a comparison the first time."""
        if not self._begun:
            self._require_gradients(batch, numbers)
            self._begun = True
        return super()._run(batch, numbers, *others)

    def _readable(self) -> list[Tensor]:
        tensors = [*self._critics.tensors(), *self._critic_targets.tensors()]
        return [*super()._readable(), *tensors]

    def _require_gradients(self, batch: Mapping[str, Tensor], numbers: dict[str, Any]) -> None:
        """Compare the gradients of a batch with those of autograd.

        Raises:
            NotRecordableError: One is another one.
        """
        given = as_batch(batch.items())
        # A difference of two values may be as small as their rounding in 16 bits.
        with full_precision():
            found, expected = self.both_gradients(given, SimpleNamespace(**numbers))
        require_same_gradients(list(found), list(found.values()), list(expected.values()))

    def both_gradients(
        self, batch: SimpleNamespace, numbers: SimpleNamespace
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradients of a batch by name, by formulas and by autograd."""
        raise NotImplementedError

    def _by_parameter(self, stacked: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return gradients of the critics by name, given those of all critics at once."""
        room = torch.zeros_like(self._critic.gradient)
        for place, gradient in zip(self._critics.of_flat(room), stacked, strict=True):
            place.copy_(gradient)
        names = (f"critic.{name}" for name, _ in self.agent.critic.named_parameters())
        return dict(zip(names, self._critic._views(room), strict=True))


class FastSACUpdate(_FastOffPolicy, SACUpdate):
    """The update of SAC, its gradients written by hand."""

    policies = _in("stable_baselines3.sac.policies", "SACPolicy")

    def __init__(self, agent: Any, *, rounds: bool = False) -> None:
        super().__init__(agent, rounds=rounds)
        critic, target = agent.critic.parameters(), agent.critic_target.parameters()
        self._polyak = FastPolyak(self._critic, list(critic), list(target))
        self._critic_targets = Ensemble(agent.critic_target.q_networks, rounds=rounds)
        self._policy = actor_of(agent.actor, rounds=rounds)

    @torch.no_grad()
    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the entropy coefficient, the critic and the actor; return what is logged of it."""
        stages, logged = self.fast_parts(batch, numbers), []
        if self._entropy is not None:
            gradient, *logged = next(stages)
            self._entropy.apply([gradient], numbers)
        *gradients, critic_loss = next(stages)
        self._critic.apply(gradients, numbers)
        found = next(stages)
        n_gradients = len(self._actor.parameters)
        self._actor.apply(found[:n_gradients], numbers)
        self._move(polyaks, numbers)
        loss, *noise = found[n_gradients:]
        return [loss, critic_loss, *logged, *noise]

    @torch.no_grad()
    def fast_parts(
        self, batch: SimpleNamespace, numbers: SimpleNamespace
    ) -> Iterator[list[Tensor]]:
        """Yield the gradients of entropy coefficient, critics and actor, in their order."""
        agent, learns = self.agent, self._entropy is not None
        observations, following = (
            self._rows(batch.observations),
            self._rows(batch.next_observations),
        )
        size = len(observations)
        noise = self._policy.draw(size)
        made = self._policy.sample(torch.cat([observations, following]), noise)
        log_prob, next_log_prob = made.log_prob[:size], made.log_prob[size:]
        ent_coef = torch.exp(agent.log_ent_coef.detach()) if learns else batch.ent_coef
        if learns:
            surplus = (log_prob.mean() + numbers.target_entropy).neg_().reshape(1)
            yield [surplus, surplus * agent.log_ent_coef.detach(), ent_coef]
        values = self._critic_targets.forward(torch.cat([following, made.actions[size:]], 1))
        entropy = (next_log_prob * ent_coef).unsqueeze(1)
        target = self.target_of(batch, numbers, values.result, entropy)
        current = self._critics.forward(torch.cat([observations, batch.actions], 1))
        of_values, loss = self.critic_loss(current.result, target)
        yield [*self._critics.backward(current, of_values), loss]
        actions = made.actions[:size]
        current = self._critics.forward(torch.cat([observations, actions], 1))
        of_values, value = self.actor_loss(current.result)
        of_actions = self._critics.backward_to_input(current, of_values, self._width)
        gradients: Gradients = {}
        self._policy.backward(made, noise, of_actions, ent_coef * (1.0 / size), gradients)
        loss = ((log_prob * ent_coef).mean() - value).reshape(())
        found = [gradients[id(p)] for p in self._actor.parameters]
        yield [*found, loss, *(matrix for matrix in noise[: self._policy.n_matrices])]

    def target_of(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, values: Tensor, entropy: Tensor
    ) -> Tensor:
        """Return what the critics should give, shape (batch, 1)."""
        return self._target(batch, numbers, values.amin(0) - entropy)

    def critic_loss(self, current: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the critics' loss by their values, and the loss."""
        difference = current - target
        size = difference.shape[1]
        return difference * (1.0 / size), (difference * difference).sum().mul_(0.5 / size)

    def actor_loss(self, current: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of minus the mean value by the critics' values, and the mean."""
        least, which = torch.min(current, dim=0, keepdim=True)
        of_values = torch.zeros_like(current).scatter_(0, which, -1.0 / current.shape[1])
        return of_values, least.mean()

    def both_gradients(
        self, batch: SimpleNamespace, numbers: SimpleNamespace
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradients of a batch by name, by formulas and by autograd."""
        agent = self.agent
        actor = [name for name, p in agent.actor.named_parameters() if p.requires_grad]
        state = torch.get_rng_state()
        *my_entropy, mine, my_actor = (list(part) for part in self.fast_parts(batch, numbers))
        torch.set_rng_state(state)
        *their_entropy, theirs, their_actor = self._gradients_by_autograd(batch, numbers)
        torch.set_rng_state(state)
        found = self._by_parameter(mine[:-1])
        expected = dict(zip(found, theirs, strict=True))
        found |= {f"actor.{n}": g for n, g in zip(actor, my_actor, strict=False)}
        expected |= {f"actor.{n}": g for n, g in zip(actor, their_actor, strict=False)}
        if self._entropy is not None:
            found["log_ent_coef"] = my_entropy[0][0]
            expected["log_ent_coef"] = their_entropy[0][0]
        return found, expected


class FastTQCUpdate(FastSACUpdate, TQCUpdate):
    """The update of TQC, its gradients written by hand."""

    policies = _in("sb3_contrib.tqc.policies", "TQCPolicy")

    def target_of(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, values: Tensor, entropy: Tensor
    ) -> Tensor:
        """Return what the critics should give, shape (batch, quantiles that are kept)."""
        critic = self.agent.critic
        n_dropped = self.agent.top_quantiles_to_drop_per_net * critic.n_critics
        n_kept = critic.quantiles_total - n_dropped
        # The loss is a sum over them: their order does not matter.
        values = values.transpose(0, 1).flatten(1)
        quantiles, _ = torch.topk(values, n_kept, dim=1, largest=False, sorted=False)
        return self._target(batch, numbers, quantiles - entropy)

    def critic_loss(self, current: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the critics' loss by their quantiles, and the loss.

        The loss is the quantile Huber loss: tau * h for a positive difference d of target and
        quantile, (1 - tau) * h for a negative one, where h = c * (d - c / 2), with c limited to
        [-1, 1], is Huber's; its derivative is c. `weighted` is c times tau or 1 - tau.
        """
        n_quantiles = current.shape[-1]
        levels = torch.arange(n_quantiles, dtype=current.dtype).add_(0.5).div_(n_quantiles)
        rest = 1.0 - 2.0 * levels
        difference = target[None, :, None, :] - current.unsqueeze(-1)
        limited = torch.clamp(difference, -1.0, 1.0)
        weighted = torch.clamp(limited, max=0.0).mul_(rest[:, None])
        weighted.addcmul_(limited, levels[:, None])
        scale = 1.0 / difference.numel()
        difference.sub_(limited, alpha=0.5)
        loss = torch.dot(difference.view(-1), weighted.view(-1)).mul_(scale)
        return weighted.sum(-1).mul_(-scale), loss

    def actor_loss(self, current: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of minus the mean value by the quantiles, and the mean."""
        return torch.full_like(current, -1.0 / (current.numel())), current.mean()


class FastTD3Update(_FastOffPolicy, TD3Update):
    """The update of TD3 and DDPG, its gradients written by hand."""

    policies = _in("stable_baselines3.td3.policies", "TD3Policy")

    def __init__(self, agent: Any, *, rounds: bool = False) -> None:
        super().__init__(agent, rounds=rounds)
        self._targets = [
            FastPolyak(steps, list(network.parameters()), list(target.parameters()))
            for steps, network, target in (
                (self._critic, agent.critic, agent.critic_target),
                (self._actor, agent.actor, agent.actor_target),
            )
        ]
        self._critic_targets = Ensemble(agent.critic_target.q_networks, rounds=rounds)
        self._policy, self._policy_target = (
            Perceptron(actor.mu, rounds=rounds) for actor in (agent.actor, agent.actor_target)
        )
        self._first_critic = Perceptron(agent.critic.q_networks[0], rounds=rounds)

    @torch.no_grad()
    def update(
        self, batch: SimpleNamespace, numbers: SimpleNamespace, polyaks: Sequence[Polyak]
    ) -> list[Tensor]:
        """Step the critic, and where target networks move, the actor; return the losses."""
        *gradients, critic_loss = self.critic_gradients(batch, numbers)
        self._critic.apply(gradients, numbers)
        logged = [critic_loss]
        if polyaks:
            *gradients, loss = self.actor_gradients(batch)
            self._actor.apply(gradients, numbers)
            self._move(polyaks, numbers)
            logged.append(loss)
        return logged

    @torch.no_grad()
    def critic_gradients(self, batch: SimpleNamespace, numbers: SimpleNamespace) -> list[Tensor]:
        """Return the gradients of the critics, and the loss."""
        following = self._rows(batch.next_observations)
        noise = batch.actions.clone().normal_(0, numbers.noise)
        noise = noise.clamp_(numbers.noise_low, numbers.noise_high)
        next_actions = self._policy_target.forward(following).result + noise
        given = torch.cat([following, next_actions.clamp_(-1, 1)], 1)
        values = self._critic_targets.forward(given).result
        target = self._target(batch, numbers, values.amin(0))
        given = torch.cat([self._rows(batch.observations), batch.actions], 1)
        current = self._critics.forward(given)
        difference = current.result - target
        size = len(target)
        loss = (difference * difference).sum().mul_(1.0 / size)
        return [*self._critics.backward(current, difference.mul_(2.0 / size)), loss]

    @torch.no_grad()
    def actor_gradients(self, batch: SimpleNamespace) -> list[Tensor]:
        """Return the gradients of the actor, and the loss."""
        observations = self._rows(batch.observations)
        made = self._policy.forward(observations)
        current = self._first_critic.forward(torch.cat([observations, made.result], 1))
        of_value = torch.full_like(current.result, -1.0 / len(observations))
        of_given = self._first_critic.backward(current, of_value, None, to_input=True)
        assert of_given is not None
        gradients: Gradients = {}
        self._policy.backward(made, of_given[:, self._width :], gradients)
        return [*(gradients[id(p)] for p in self._actor.parameters), -current.result.mean()]

    def both_gradients(
        self, batch: SimpleNamespace, numbers: SimpleNamespace
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradients of a batch by name, by formulas and by autograd."""
        state = torch.get_rng_state()
        *of_critics, _ = self.critic_gradients(batch, numbers)
        torch.set_rng_state(state)
        # The actor learns where target networks move; here none does.
        still = Polyak(self._critic, (), ())
        unmoved = SimpleNamespace(**vars(numbers) | {"tau": 0.0, "rest": 1.0})
        critics, theirs = self._gradients_by_autograd(batch, unmoved, [still])
        torch.set_rng_state(state)
        found = self._by_parameter(of_critics)
        expected = dict(zip(found, critics, strict=True))
        mine = self.actor_gradients(batch)
        names = [name for name, p in self.agent.actor.named_parameters() if p.requires_grad]
        found |= {f"actor.{n}": g for n, g in zip(names, mine, strict=False)}
        expected |= {f"actor.{n}": g for n, g in zip(names, theirs, strict=False)}
        return found, expected


def _require_known(agent: Any, policies: Sequence[str]) -> None:
    """Check that a policy is one whose forward pass is known.

    Raises:
        NotRecordableError: It is another one.
    """
    policy, space = agent.policy, agent.observation_space
    if name_of(type(policy)) not in policies:
        raise NotRecordableError(f"{type(policy).__name__} is not MlpPolicy or MultiInputPolicy")
    for part in (agent.actor, agent.critic, agent.critic_target):
        extractor = part.features_extractor
        if type(extractor) not in (FlattenExtractor, CombinedExtractor):
            raise NotRecordableError(
                f"{type(extractor).__name__} is not a known features extractor"
            )
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if not all(isinstance(part, spaces.Box) and not is_image_space(part) for part in parts):
        raise NotRecordableError("observations are not vectors of numbers")

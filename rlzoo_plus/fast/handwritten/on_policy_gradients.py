"""The updates of PPO and A2C with hand-written gradients: the same mathematics, other rounding."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from torch import Tensor

from rlzoo_plus.fast.handwritten.adam_steps import make_fast_steps
from rlzoo_plus.fast.handwritten.checks import require_same_gradients
from rlzoo_plus.fast.handwritten.distributions import distribution_of
from rlzoo_plus.fast.handwritten.layers import Gradients, Perceptron
from rlzoo_plus.fast.recorded.known_code import name_of
from rlzoo_plus.fast.recorded.on_policy import A2CUpdate, OnPolicyUpdate, PPOUpdate
from rlzoo_plus.fast.recorded.tape import NotRecordableError

# Rows begin where vector instructions read fastest: 64 bytes.
_ALIGNMENT = 16
# Those with which the first minibatch is compared.
_RANGES = {"clip": 0.2, "clip_low": 0.8, "clip_high": 1.2, "clip_vf": 0.2, "clip_vf_low": -0.2}


class _FastOnPolicy(OnPolicyUpdate):
    """What PPO and A2C share: a perceptron for each of policy and value, and a distribution.

    Attributes:
        can_round: Whether products may be made in bfloat16; differences of log probabilities are
            too small for it.
    """

    can_round = False

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        policy = agent.policy
        _require_known(agent)
        self._distribution = distribution_of(policy)
        networks = policy.mlp_extractor
        self._latent, self._head = Perceptron(networks.policy_net), Perceptron(policy.action_net)
        self._value = Perceptron(networks.value_net, policy.value_net)
        self._width = int(np.prod(agent.observation_space.shape))
        discrete = isinstance(agent.action_space, spaces.Discrete)
        self._n_actions = 1 if discrete else int(np.prod(agent.action_space.shape))
        learned = {id(p) for group in policy.optimizer.param_groups for p in group["params"]}
        if not all(id(p) in learned for p in policy.parameters() if p.requires_grad):
            raise NotRecordableError("a parameter is not in the optimizer")
        self._parameters = [p for p in policy.parameters() if p.requires_grad]

    def kind(self, *args: Any, **kwargs: Any) -> Any:
        """Return what decides which calls an update makes."""
        return self.agent.ent_coef != 0.0, *super().kind(*args, **kwargs)

    @torch.no_grad()
    def gradients(
        self, batch: Sequence[Any], numbers: SimpleNamespace
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients of all parameters for a minibatch, and what is logged of it.

        Args:
            batch: Observations, actions, old values, old log probabilities, advantages, returns.
            numbers: Coefficients and clip ranges.
        """
        observations, actions, *columns = batch
        gradients: Gradients = {}
        latent = self._latent.forward(observations)
        head = self._head.forward(latent.result)
        made = self._distribution.evaluate(head.result, latent.result, actions)
        value = self._value.forward(observations)
        of_log_prob, of_value, *logged = self.parts_of_loss(
            made.log_prob, value.result.squeeze(1), columns, numbers
        )
        of_entropy = numbers.of_entropy if self.agent.ent_coef != 0.0 else None
        entropy = made.entropy
        if entropy is None:  # it is estimated by minus the log probability
            entropy = -made.log_prob
            if of_entropy is not None:
                of_log_prob, of_entropy = of_log_prob - of_entropy, None
        of_head = self._distribution.backward(made, of_log_prob, of_entropy, gradients)
        of_latent = self._head.backward(
            head, of_head, gradients, to_input=bool(self._latent.layers)
        )
        if of_latent is not None:
            self._latent.backward(latent, of_latent, gradients)
        self._value.backward(value, of_value.unsqueeze(1), gradients)
        mean = entropy.mean() if entropy.dim() else entropy
        return [gradients[id(p)] for p in self._parameters], [-mean, *logged]

    def parts_of_loss(
        self, log_prob: Tensor, values: Tensor, columns: Sequence[Tensor], numbers: SimpleNamespace
    ) -> list[Tensor]:
        """Return the loss's gradients by log probability and value, and what is logged."""
        raise NotImplementedError

    def _rollout(self) -> list[Tensor]:
        """Return the rollout as one matrix, with a row for each sample."""
        observations, actions, *columns = super()._rollout()
        count = len(observations)
        width = self._width + self._n_actions + len(columns)
        packed = torch.zeros(count, -(-width // _ALIGNMENT) * _ALIGNMENT)
        packed[:, : self._width] = observations.reshape(count, -1)
        packed[:, self._width : self._width + self._n_actions] = actions.reshape(count, -1)
        packed[:, self._width + self._n_actions : width] = torch.stack(columns, dim=1)
        return [packed]

    def _batch(self, columns: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
        """Return rows of a rollout: observations and the other columns."""
        chosen, first = columns[0].index_select(0, rows), self._width + self._n_actions
        others = [chosen[:, first + k] for k in range(4)]
        return [chosen[:, : self._width], chosen[:, self._width : first], *others]

    def _minibatch(
        self, columns: Sequence[Tensor], rows: Tensor, numbers: dict[str, Any]
    ) -> Sequence[Tensor]:
        """Make an update with some rows of a rollout, and return what is logged of it."""
        return super()._minibatch(columns, rows, numbers | self.factors(len(rows)))

    def factors(self, size: int) -> dict[str, float]:
        """Return the factors of the gradients of entropy and value for so many samples, by name."""
        agent = self.agent
        return {"of_entropy": -agent.ent_coef / size, "of_value": 2 * agent.vf_coef / size}

    def _flatten(self, batch: Sequence[Any], numbers: SimpleNamespace) -> None:
        """Compare the gradients of a minibatch with those of autograd; flatten the parameters."""
        # At the end of a schedule the clip range is zero, where rounding decides.
        ranges = {name: value for name, value in _RANGES.items() if hasattr(numbers, name)}
        numbers = SimpleNamespace(**vars(numbers) | ranges)
        observations, *others = batch
        shaped = [observations.reshape(-1, *self.agent.observation_space.shape), *others]
        with torch.enable_grad():
            expected = torch.autograd.grad(self.loss(shaped, numbers)[0], self._parameters)
        names = {id(p): name for name, p in self.agent.policy.named_parameters()}
        found, _ = self.gradients(batch, numbers)
        require_same_gradients([names[id(p)] for p in self._parameters], found, expected)
        self.steps = [make_fast_steps(self.agent.policy.optimizer, self._parameters)]


class FastPPOUpdate(_FastOnPolicy, PPOUpdate):
    """The update of PPO, its gradients written by hand."""

    def parts_of_loss(
        self, log_prob: Tensor, values: Tensor, columns: Sequence[Tensor], numbers: SimpleNamespace
    ) -> list[Tensor]:
        """Return the loss's gradients by log probability and value, and what is logged."""
        old_values, old_log_prob, advantages, returns = columns
        size = len(advantages)
        if self.agent.normalize_advantage and size > 1:
            std, mean = torch.std_mean(advantages)
            advantages = torch.sub(advantages, mean).div_(std + 1e-8)
        log_ratio = log_prob - old_log_prob
        ratio = torch.exp(log_ratio)
        clipped = torch.clamp(ratio, numbers.clip_low, numbers.clip_high)
        plain, limited = advantages * ratio, advantages * clipped
        gain = torch.minimum(plain, limited)
        # Zero where the limited one is less; NaN stays.
        passing = torch.ops.aten.threshold_backward(plain, limited - plain, -1e-38)
        of_log_prob = passing.mul_(-1.0 / size)
        if self.agent.clip_range_vf is None:
            error = values - returns
            of_value = error * numbers.of_value
        else:
            change = values - old_values
            kept = torch.clamp(change, numbers.clip_vf_low, numbers.clip_vf)
            error = torch.add(old_values, kept).sub_(returns)
            of_value = (error * numbers.of_value).mul_(change == kept)
        beyond = torch.count_nonzero(ratio - clipped) * (1.0 / size)
        divergence = torch.sub(ratio, log_ratio).sub_(1.0)
        means = torch.stack([gain, error * error, divergence]).mean(1)
        return [of_log_prob, of_value, means, beyond]

    def _stops(self, results: Sequence[Tensor]) -> bool:
        """Return whether a minibatch makes no step, given what is logged of it."""
        target = self.agent.target_kl
        return target is not None and float(results[1][2]) > 1.5 * target

    def _means(self, columns: Sequence[Sequence[Tensor]], n_before: int) -> dict[str, Any]:
        """Return what is logged by name, given each of its numbers for all minibatches."""
        entropies, means, beyond = (torch.stack(list(c)).double().numpy() for c in columns)
        gains, errors, divergences = means.T
        agent = self.agent
        loss = -gains[-1] + agent.ent_coef * entropies[-1] + agent.vf_coef * errors[-1]
        return {
            **{"entropy_loss": entropies.mean(), "policy_gradient_loss": -gains.mean()},
            **{"value_loss": errors.mean(), "approx_kl": divergences[n_before:].mean()},
            **{"clip_fraction": beyond.mean(), "loss": loss},
        }


class FastA2CUpdate(_FastOnPolicy, A2CUpdate):
    """The update of A2C, its gradients written by hand."""

    def parts_of_loss(
        self, log_prob: Tensor, values: Tensor, columns: Sequence[Tensor], numbers: SimpleNamespace
    ) -> list[Tensor]:
        """Return the loss's gradients by log probability and value, and what is logged."""
        _, _, advantages, returns = columns
        if self.agent.normalize_advantage:
            std, mean = torch.std_mean(advantages)
            advantages = torch.sub(advantages, mean).div_(std + 1e-8)
        error = values - returns
        of_log_prob = advantages * (-1.0 / len(advantages))
        policy_loss = torch.dot(of_log_prob, log_prob)
        value_loss = (error * error).mean()
        return [of_log_prob, error * numbers.of_value, policy_loss, value_loss]


def _require_known(agent: Any) -> None:
    """Check that a policy is one whose forward pass is known.

    Raises:
        NotRecordableError: It is another one.
    """
    policy = agent.policy
    if name_of(type(policy)) != "stable_baselines3.common.policies.ActorCriticPolicy":
        raise NotRecordableError(f"{type(policy).__name__} is not MlpPolicy")
    for part in (policy.pi_features_extractor, policy.vf_features_extractor):
        if type(part) is not FlattenExtractor:
            raise NotRecordableError(f"{type(part).__name__} is not a known features extractor")
    if type(policy.mlp_extractor) is not MlpExtractor:
        raise NotRecordableError(f"{type(policy.mlp_extractor).__name__} is not MlpExtractor")
    space = agent.observation_space
    if not isinstance(space, spaces.Box) or is_image_space(space):
        raise NotRecordableError("observations are not a vector of numbers")
    if not isinstance(agent.action_space, spaces.Box | spaces.Discrete):
        raise NotRecordableError(f"actions are {type(agent.action_space).__name__}")

"""Log probabilities and entropies of actions with their gradients, for PPO and A2C.

The formulas are those of `stable_baselines3.common.distributions`. A policy's loss depends on a
distribution through the log probability of each action and through the entropy; a distribution is
given the gradients of the loss with respect to both, and returns that of the action network.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
    StateDependentNoiseDistribution,
)
from torch import Tensor

from rlzoo_plus.fast.handwritten.layers import Gradients
from rlzoo_plus.fast.recorded.tape import NotRecordableError

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Evaluated(SimpleNamespace):
    """A batch of actions under a distribution, and what its backward pass needs.

    Attributes:
        log_prob: Of each action, shape (batch,).
        entropy: Of each sample, shape (batch,), or of all alike, shape (); None if it has none.
    """

    log_prob: Tensor
    entropy: Tensor | None


class Categorical:
    """Choices of one of several actions."""

    def evaluate(self, logits: Tensor, _latent: Tensor, actions: Tensor) -> Evaluated:
        """Return log probabilities and entropies, for logits and actions of shape (batch, n)."""
        # A column for each sample: sums over few rows are faster than over few columns.
        logs = torch.log_softmax(logits.t(), dim=0)
        chosen = actions.long().t()
        probabilities = torch.exp(logs)
        entropy = torch.mul(probabilities, logs).sum(0).neg_()
        log_prob = logs.gather(0, chosen).squeeze(0)
        parts = {"logs": logs, "chosen": chosen, "probabilities": probabilities}
        return Evaluated(log_prob=log_prob, entropy=entropy, **parts)

    def backward(
        self, made: Evaluated, of_log_prob: Tensor, of_entropy: Any, _gradients: Gradients
    ) -> Tensor:
        """Return the gradient of the logits.

        Args:
            made: What was evaluated.
            of_log_prob: Gradients of the loss by log probability, shape (batch,).
            of_entropy: That by a sample's entropy, the same number for all; None for zero.
            _gradients: Receives gradients of parameters; there are none.
        """
        inner = of_log_prob
        if of_entropy is not None:
            inner = inner + (made.logs + made.entropy).mul_(of_entropy)
        gradient = torch.mul(made.probabilities, inner).neg_()
        return gradient.scatter_add_(0, made.chosen, of_log_prob.unsqueeze(0)).t()


class Gaussian:
    """Normal distributions with a standard deviation that does not depend on the state."""

    def __init__(self, log_std: Tensor) -> None:
        self._log_std = log_std

    def evaluate(self, mean: Tensor, _latent: Tensor, actions: Tensor) -> Evaluated:
        """Return log probabilities and entropies, for means and actions of shape (batch, n)."""
        total, constant = self._log_std.sum(), mean.shape[1] * _HALF_LOG_2PI
        narrowness = torch.exp(-self._log_std)
        z = torch.sub(actions, mean).mul_(narrowness)
        squares = z * z
        log_prob = squares.sum(1).mul_(-0.5).sub_(total).sub_(constant)
        entropy = total + (0.5 * mean.shape[1] + constant)
        return Evaluated(
            log_prob=log_prob, entropy=entropy, z=z, squares=squares, narrowness=narrowness
        )

    def backward(
        self, made: Evaluated, of_log_prob: Tensor, of_entropy: Any, gradients: Gradients
    ) -> Tensor:
        """Return the gradient of the means; that of the deviation goes to `gradients`."""
        weight = of_log_prob.unsqueeze(1)
        of_std = torch.mv(made.squares.t(), of_log_prob) - of_log_prob.sum()
        if of_entropy is not None:
            of_std = torch.add(of_std, made.z.new_full((), float(len(weight))), alpha=of_entropy)
        gradients[id(self._log_std)] = of_std
        return torch.mul(made.z, weight).mul_(made.narrowness)


class StateDependentNoise:
    """Normal distributions of gSDE: their deviation depends on the features of the state.

    As in PPO and A2C, the features do not learn from the noise.
    """

    def __init__(self, log_std: Tensor, distribution: StateDependentNoiseDistribution) -> None:
        self._log_std = log_std
        self._std = DeviationOfNoise(log_std, distribution)
        self._epsilon = distribution.epsilon
        self._squash = distribution.bijector

    def evaluate(self, mean: Tensor, latent: Tensor, actions: Tensor) -> Evaluated:
        """Return log probabilities and entropies, given the features too."""
        squares, std = latent * latent, self._std.forward()
        variance = self._std.variance(squares, std, mean.shape[1]).add_(self._epsilon)
        correction = None
        if self._squash is not None:
            actions = self._squash.inverse(actions)
            correction = self._squash.log_prob_correction(actions).sum(1)
        difference = actions - mean
        scaled = difference / variance
        z_squared = difference * scaled
        half_log = torch.log(variance).sum(1).mul_(0.5)
        constant = mean.shape[1] * _HALF_LOG_2PI
        log_prob = z_squared.sum(1).mul_(-0.5).sub_(half_log).sub_(constant)
        entropy = None
        if correction is None:
            entropy = half_log + (0.5 * mean.shape[1] + constant)
        else:
            log_prob = log_prob - correction
        return Evaluated(
            **{"log_prob": log_prob, "entropy": entropy, "scaled": scaled, "std": std},
            **{"z_squared": z_squared, "variance": variance, "squares": squares},
        )

    def backward(
        self, made: Evaluated, of_log_prob: Tensor, of_entropy: Any, gradients: Gradients
    ) -> Tensor:
        """Return the gradient of the means; that of the deviation goes to `gradients`."""
        weight = of_log_prob.unsqueeze(1)
        # Twice the gradient of the variance.
        twice = torch.sub(made.z_squared, 1.0).mul_(weight)
        if of_entropy is not None:
            twice = twice.add_(of_entropy)
        twice = twice.div_(made.variance)
        gradients[id(self._log_std)] = self._std.backward(made.squares, made.std, twice)
        return torch.mul(made.scaled, weight)


class DeviationOfNoise:
    """The standard deviation of gSDE's exploration matrix, as a function of its parameter."""

    def __init__(self, log_std: Tensor, distribution: StateDependentNoiseDistribution) -> None:
        self._log_std, self._epsilon = log_std, distribution.epsilon
        self._expln, self._full = distribution.use_expln, distribution.full_std

    def forward(self) -> Tensor:
        """Return the deviation, of the parameter's shape."""
        log_std = self._log_std
        if not self._expln:
            return torch.exp(log_std)
        above = torch.clamp(log_std, min=0.0) + self._epsilon
        return torch.where(log_std <= 0, torch.exp(log_std), torch.log1p(above) + 1.0)

    def variance(self, squares: Tensor, std: Tensor, n_actions: int) -> Tensor:
        """Return the variance of the noise of each action, for squared features."""
        variance = torch.mm(squares, std * std)
        return variance if self._full else variance.expand(-1, n_actions).clone()

    def backward(
        self, squares: Tensor, std: Tensor, twice: Tensor, more: Tensor | None = None
    ) -> Tensor:
        """Return the gradient of the parameter.

        Args:
            squares: Squared features, shape (batch, features).
            std: The deviation.
            twice: Two times the gradient of the variances, shape (batch, actions).
            more: The gradient of the deviation for each feature and action by other ways.
        """
        if not self._full:
            twice = twice.sum(1, keepdim=True)
            more = None if more is None else more.sum(1, keepdim=True)
        of_std = torch.mm(squares.t(), twice).mul_(std)
        if more is not None:
            of_std = of_std.add_(more)
        if not self._expln:
            return of_std.mul_(std)
        log_std = self._log_std
        above = torch.reciprocal(torch.clamp(log_std, min=0.0) + (1.0 + self._epsilon))
        return of_std.mul_(torch.where(log_std <= 0, std, above))


Distribution = Categorical | Gaussian | StateDependentNoise


def distribution_of(policy: Any) -> Distribution:
    """Return the distribution of a policy's actions.

    Raises:
        NotRecordableError: It is of another kind.
    """
    kind = type(policy.action_dist)
    if kind is CategoricalDistribution:
        return Categorical()
    if kind is DiagGaussianDistribution:
        return Gaussian(policy.log_std)
    if kind is StateDependentNoiseDistribution and not policy.action_dist.learn_features:
        return StateDependentNoise(policy.log_std, policy.action_dist)
    raise NotRecordableError(f"{kind.__name__} is not one of the distributions that it knows")

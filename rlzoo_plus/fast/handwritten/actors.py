"""Random actions of SAC and TQC, their log probabilities, and the gradients of both.

Actions are tanh of a normal variable; the formulas are those of
`stable_baselines3.common.distributions`. Random numbers are drawn as standard normal ones, so a
gradient passes through the mean and the deviation.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from stable_baselines3.common.distributions import (
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
)
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN
from torch import Tensor

from rlzoo_plus.fast.handwritten.distributions import DeviationOfNoise
from rlzoo_plus.fast.handwritten.layers import Gradients, Pass, Perceptron
from rlzoo_plus.fast.recorded.tape import NotRecordableError

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Sampled(SimpleNamespace):
    """Actions that were drawn, and what their backward pass needs.

    Attributes:
        actions: Shape (batch, n).
        log_prob: Shape (batch,).
    """

    actions: Tensor
    log_prob: Tensor


class GaussianActor:
    """An actor with a mean and a deviation for each state."""

    n_matrices = 0

    def __init__(self, actor: Any, *, rounds: bool) -> None:
        self._latent = Perceptron(actor.latent_pi, rounds=rounds)
        self._mean, self._log_std = Perceptron(actor.mu), Perceptron(actor.log_std)
        self._epsilon, self._n_actions = actor.action_dist.epsilon, actor.action_dist.action_dim
        self._dtype = actor.mu.weight.dtype

    def draw(self, size: int) -> list[Tensor]:
        """Draw random numbers for twice as many states: as SB3, one half after the other."""
        shape, dtype = (size, self._n_actions), self._dtype
        return [torch.cat([torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)])]

    def sample(self, observations: Tensor, noise: list[Tensor]) -> Sampled:
        """Return actions for states and random numbers."""
        latent = self._latent.forward(observations)
        mean, log_std = self._mean.forward(latent.result), self._log_std.forward(latent.result)
        clipped = torch.clamp(log_std.result, LOG_STD_MIN, LOG_STD_MAX)
        (normal,) = noise
        spread = torch.exp(clipped).mul_(normal)
        actions = torch.tanh(mean.result + spread)
        room = torch.addcmul(actions.new_full((), 1.0 + self._epsilon), actions, actions, value=-1)
        terms = torch.addcmul(clipped, normal, normal, value=0.5).add_(torch.log(room))
        log_prob = terms.sum(1).neg_().sub_(actions.shape[1] * _HALF_LOG_2PI)
        return Sampled(
            **{"actions": actions, "log_prob": log_prob, "latent": latent, "room": room},
            **{"mean": mean, "log_std": log_std, "clipped": clipped, "spread": spread},
        )

    def backward(
        self,
        made: Sampled,
        _noise: list[Tensor],
        of_actions: Tensor,
        of_log_prob: Tensor,
        gradients: Gradients,
    ) -> None:
        """Note the gradients of all parameters.

        Args:
            made: What was drawn; the first of its samples count.
            _noise: The random numbers.
            of_actions: Gradient of the loss by action, shape (batch, n).
            of_log_prob: That by a sample's log probability, the same for all.
            gradients: Receives them.
        """
        size = len(of_actions)
        actions, room = made.actions[:size], made.room[:size]
        of_normal = (actions * (2 * of_log_prob)).div_(room).add_(of_actions)
        of_normal = torch.ops.aten.tanh_backward(of_normal, actions)
        clipped, log_std = made.clipped[:size], made.log_std.first(size)
        of_log_std = (of_normal * made.spread[:size]).sub_(of_log_prob)
        of_log_std = of_log_std.mul_(clipped == log_std.result)
        latent = made.latent.first(size)
        total = _head(self._mean, made.mean.first(size), of_normal, gradients)
        total = total.add_(_head(self._log_std, log_std, of_log_std, gradients))
        self._latent.backward(latent, total, gradients)


class NoiseActor:
    """An actor with gSDE: a mean, and noise that is a linear function of the features.

    Attributes:
        n_matrices: How many of the tensors that are drawn the agent's distribution keeps.
    """

    n_matrices = 2

    def __init__(self, actor: Any, *, rounds: bool) -> None:
        self._latent = Perceptron(actor.latent_pi, rounds=rounds)
        self._mean = Perceptron(actor.mu)
        self._log_std = actor.log_std
        distribution = actor.action_dist
        self._std = DeviationOfNoise(actor.log_std, distribution)
        self._n_actions, self._epsilon = distribution.action_dim, distribution.epsilon
        most = 1.0 - torch.finfo(actor.log_std.dtype).eps
        self._most_action, self._most = most, math.atanh(most)

    def draw(self, _size: int) -> list[Tensor]:
        """Draw the exploration matrix of the update, and those of the environments."""
        std = self._std.forward()
        size = (len(std), self._n_actions)
        normal = torch.randn(size, dtype=std.dtype)
        more = torch.randn((1, *size), dtype=std.dtype)
        return [normal * std, more * std, normal, std]

    def sample(self, observations: Tensor, noise: list[Tensor]) -> Sampled:
        """Return actions for states and random numbers."""
        matrix, _, _, std = noise
        latent = self._latent.forward(observations)
        mean = self._mean.forward(latent.result)
        squares = latent.result * latent.result
        variance = self._std.variance(squares, std, self._n_actions).add_(self._epsilon)
        normal = torch.addmm(mean.result, latent.result, matrix)
        actions = torch.tanh(normal)
        # The log probability is that of the action: infinite ones do not come back from tanh.
        kept = torch.clamp(normal, -self._most, self._most)
        limited = torch.clamp(actions, -self._most_action, self._most_action)
        room = torch.addcmul(limited.new_full((), 1.0 + self._epsilon), limited, limited, value=-1)
        difference = kept - mean.result
        scaled = difference / variance
        z_squared = scaled * difference
        terms = torch.add(z_squared, torch.log(variance)).mul_(0.5).add_(torch.log(room))
        log_prob = terms.sum(1).neg_().sub_(self._n_actions * _HALF_LOG_2PI)
        return Sampled(
            **{"actions": actions, "log_prob": log_prob, "latent": latent, "mean": mean},
            **{"squares": squares, "variance": variance, "normal": normal, "kept": kept},
            **{"limited": limited, "room": room, "scaled": scaled, "z_squared": z_squared},
        )

    def backward(
        self,
        made: Sampled,
        noise: list[Tensor],
        of_actions: Tensor,
        of_log_prob: Tensor,
        gradients: Gradients,
    ) -> None:
        """Note the gradients of all parameters, as `GaussianActor.backward`."""
        size = len(of_actions)
        matrix, _, random, std = noise
        latent, mean = made.latent.first(size), made.mean.first(size)
        limited, scaled = made.limited[:size], made.scaled[:size] * of_log_prob
        of_kept = torch.ops.aten.tanh_backward(limited * (2 * of_log_prob), limited)
        of_kept = of_kept.div_(made.room[:size]).sub_(scaled)
        of_normal = torch.ops.aten.tanh_backward(of_actions, made.actions[:size])
        of_normal.addcmul_(of_kept, (made.kept[:size] == made.normal[:size]).to(of_kept.dtype))
        twice = (made.z_squared[:size] - 1.0).div_(made.variance[:size]).mul_(of_log_prob)
        total = _head(self._mean, mean, of_normal + scaled, gradients)
        total = total.addmm_(of_normal, matrix.t())
        squared = std * std
        full = squared if squared.shape[1] == self._n_actions else squared.expand(matrix.shape)
        total = total.addcmul_(latent.result, torch.mm(twice, full.t()))
        self._latent.backward(latent, total, gradients)
        of_std = torch.mm(latent.result.t(), of_normal).mul_(random)
        of_log_std = self._std.backward(made.squares[:size], std, twice, of_std)
        gradients[id(self._log_std)] = of_log_std


def _head(network: Perceptron, made: Pass, gradient: Tensor, gradients: Gradients) -> Tensor:
    of_input = network.backward(made, gradient, gradients, to_input=True)
    assert of_input is not None
    return of_input


def actor_of(actor: Any, *, rounds: bool = False) -> GaussianActor | NoiseActor:
    """Return what draws the actions of an actor.

    Args:
        actor: That of SAC or TQC.
        rounds: Whether products of large layers are made in bfloat16.

    Raises:
        NotRecordableError: Its distribution is of another kind.
    """
    kind = type(actor.action_dist)
    if kind is SquashedDiagGaussianDistribution:
        return GaussianActor(actor, rounds=rounds)
    if kind is StateDependentNoiseDistribution and actor.action_dist.learn_features:
        return NoiseActor(actor, rounds=rounds)
    raise NotRecordableError(f"{kind.__name__} is not one of the distributions that it knows")

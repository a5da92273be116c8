"""Which entries of an observation an action depends on: integrated gradients.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, eq. 1: the gradient of
an output along the straight line from a baseline to an observation, times their difference. Over
all entries it sums up to the difference of the outputs, which is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.policies.entries import as_parts, joined
from rlzoo_plus.policies.values import action_values, as_tensors, empty_memory

_STEPS = 32
_MOST_OBSERVATIONS, _MOST_OUTPUTS = 64, 16


@dataclass(frozen=True)
class Saliency:
    """How much the actions depend on each entry of the observation."""

    # Mean absolute attribution of each entry, by key; the key of a flat observation is empty
    parts: dict[str, np.ndarray]
    # The largest error of the sums, as a share of the largest difference of outputs
    residual: float

    def entries(self) -> np.ndarray:
        """Return the share of each entry, in the order of their names; they sum up to 1."""
        flat = np.concatenate([np.ravel(part) for part in self.parts.values()])
        total = float(flat.sum())
        return flat / total if total > 0 else flat


def outputs(policy: Policy, seen: Any) -> Any:
    """Return what decides the action: its mean, or a number for each choice; differentiable.

    Args:
        policy: The policy; a recurrent one starts with an empty memory.
        seen: From `as_tensors`.

    Returns:
        Shape (n, n_outputs).
    """
    network: Any = policy.network
    if hasattr(network, "lstm_actor") and hasattr(network, "get_distribution"):
        starts = torch.ones(len(next(iter(as_parts(seen).values()))), device=network.device)
        memory = empty_memory(network, len(starts))
        return _of_distribution(network.get_distribution(seen, memory, starts)[0])
    if hasattr(network, "get_distribution"):
        return _of_distribution(network.get_distribution(seen))
    if hasattr(network, "actor"):
        actor = network.actor
        if hasattr(actor, "get_action_dist_params"):
            return torch.tanh(actor.get_action_dist_params(seen)[0])
        return actor(seen)
    if hasattr(network, "action_net"):
        return network.action_net(network.extract_features(seen, network.features_extractor))
    return action_values(network, seen)


def saliency(policy: Policy, observations: Any) -> Saliency:
    """Return the saliency of each entry, against the mean observation.

    Args:
        policy: The policy.
        observations: Raw, shape (n, ...) or a dictionary of such; evenly spread ones are used.
            Parts that are no `Box` are kept as they are, and get 0.
    """
    policy.network.set_training_mode(False)
    chosen, centre = _chosen_and_mean(policy, observations)
    ends = {key: part.float() for key, part in as_parts(as_tensors(policy, chosen)).items()}
    mean = {key: part.float() for key, part in as_parts(as_tensors(policy, centre)).items()}
    varied = _boxes(policy)
    starts = {key: mean[key].expand_as(ends[key]) if key in varied else ends[key] for key in ends}
    with torch.no_grad():
        before, after = (outputs(policy, joined(part)) for part in (starts, ends))
    # Of discrete actions only the one that is taken counts.
    best, n_outputs = after.argmax(dim=1), min(after.shape[1], _MOST_OUTPUTS)
    columns = [best]
    if not isinstance(policy.action_space, spaces.Discrete):
        columns = [torch.full_like(best, number) for number in range(n_outputs)]
    parts = {key: np.zeros(tuple(ends[key].shape[1:])) for key in ends}
    error, largest = 0.0, 1e-12
    for column in columns:
        found = _integrated(policy, starts, ends, varied, column)
        summed = sum(part.flatten(1).sum(dim=1) for part in found.values())
        wanted = (after - before).gather(1, column[:, None])[:, 0]
        error = max(error, float((summed - wanted).abs().max()))
        largest = max(largest, float(wanted.abs().max()))
        for key, part in found.items():
            parts[key] = parts[key] + part.abs().mean(dim=0).cpu().numpy()
    return Saliency(parts, error / largest)


def evenly_spread(count: int, most: int) -> np.ndarray:
    """Return indices of at most so many of `count` rows."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _integrated(
    policy: Policy,
    starts: dict[str, torch.Tensor],
    ends: dict[str, torch.Tensor],
    varied: list[str],
    column: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Return the attributions of one output each: the mean gradient, by the midpoint rule."""
    totals = {key: torch.zeros_like(ends[key]) for key in varied}
    for number in range(_STEPS):
        share = (number + 0.5) / _STEPS
        point = {key: starts[key] + share * (ends[key] - starts[key]) for key in ends}
        leaves = [point[key].detach().requires_grad_() for key in varied]
        point |= dict(zip(varied, leaves, strict=True))
        with torch.enable_grad():
            total = outputs(policy, joined(point)).gather(1, column[:, None]).sum()
            found = torch.autograd.grad(total, leaves, allow_unused=True)
        for key, gradient in zip(varied, found, strict=True):
            if gradient is not None:
                totals[key] += gradient
    return {key: total / _STEPS * (ends[key] - starts[key]) for key, total in totals.items()}


def _of_distribution(found: Any) -> Any:
    several: Any = getattr(found, "distributions", None) or getattr(found, "distribution", None)
    if isinstance(several, (list, tuple)):
        return torch.cat([one.logits for one in several], dim=1)
    return several.logits if "logits" in vars(several) else found.mode()


def _chosen_and_mean(policy: Policy, observations: Any) -> tuple[Any, Any]:
    parts = as_parts(observations)
    rows = evenly_spread(len(next(iter(parts.values()))), _MOST_OBSERVATIONS)
    chosen = {key: part[rows] for key, part in parts.items()}
    mean = {key: part[:1] for key, part in parts.items()}
    for key in _boxes(policy):
        mean[key] = parts[key].mean(axis=0, keepdims=True).astype(parts[key].dtype)
    return joined(chosen), joined(mean)


def _boxes(policy: Policy) -> list[str]:
    parts = parts_of(policy.observation_space).items()
    return [key for key, part in parts if isinstance(part, spaces.Box)]

"""Which entries of an observation an action depends on: integrated gradients.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, eq. 1: the gradient of
an output along the straight line from a baseline to an observation, times their difference. Over
all entries it sums up to the difference of the outputs, which is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.policies.values import action_values, as_tensors

if TYPE_CHECKING:
    import torch

    from rlzoo_plus.agents.policy import Policy

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


def outputs(policy: Policy, seen: Any) -> torch.Tensor:
    """Return what decides the action: its mean, or a number for each choice; differentiable.

    Args:
        policy: The policy; a recurrent one starts with an empty memory.
        seen: From `as_tensors`.

    Returns:
        Shape (n, n_outputs).
    """
    import torch

    network: Any = policy.network
    if hasattr(network, "lstm_actor"):
        count = len(next(iter(seen.values())) if isinstance(seen, dict) else seen)
        lstm = network.lstm_actor
        zeros = torch.zeros(lstm.num_layers, count, lstm.hidden_size, device=network.device)
        starts = torch.ones(count, device=network.device)
        return _of_distribution(network.get_distribution(seen, (zeros, zeros), starts)[0])
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
    import torch

    policy.network.set_training_mode(False)
    chosen, centre = _chosen_and_mean(policy, observations)
    ends = {key: part.float() for key, part in as_parts(as_tensors(policy, chosen)).items()}
    mean = {key: part.float() for key, part in as_parts(as_tensors(policy, centre)).items()}
    varied = [key for key in ends if _is_box(policy.observation_space, key)]
    starts = {key: mean[key].expand_as(ends[key]) if key in varied else ends[key] for key in ends}
    with torch.no_grad():
        before, after = (outputs(policy, _joined(part)) for part in (starts, ends))
    # Of discrete actions only the one that is taken counts.
    is_choice = isinstance(policy.action_space, spaces.Discrete)
    columns = [after.argmax(dim=1)]
    if not is_choice:
        columns = [
            torch.full_like(columns[0], n) for n in range(min(after.shape[1], _MOST_OUTPUTS))
        ]
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


def as_parts(seen: Any) -> dict[str, Any]:
    """Return observations by key; that of flat ones is empty."""
    return dict(seen) if isinstance(seen, dict) else {"": seen}


def _integrated(
    policy: Policy,
    starts: dict[str, torch.Tensor],
    ends: dict[str, torch.Tensor],
    varied: list[str],
    column: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Return the attributions of one output each: the mean gradient, by the midpoint rule."""
    import torch

    totals = {key: torch.zeros_like(ends[key]) for key in varied}
    for number in range(_STEPS):
        share = (number + 0.5) / _STEPS
        point = {key: starts[key] + share * (ends[key] - starts[key]) for key in ends}
        leaves = [point[key].detach().requires_grad_() for key in varied]
        point |= dict(zip(varied, leaves, strict=True))
        with torch.enable_grad():
            total = outputs(policy, _joined(point)).gather(1, column[:, None]).sum()
            found = torch.autograd.grad(total, leaves, allow_unused=True)
        for key, gradient in zip(varied, found, strict=True):
            if gradient is not None:
                totals[key] += gradient
    return {key: total / _STEPS * (ends[key] - starts[key]) for key, total in totals.items()}


def _of_distribution(found: Any) -> torch.Tensor:
    import torch

    several = getattr(found, "distributions", None) or getattr(found, "distribution", None)
    if isinstance(several, (list, tuple)):
        return torch.cat([one.logits for one in several], dim=1)
    return several.logits if "logits" in vars(several) else found.mode()


def _chosen_and_mean(policy: Policy, observations: Any) -> tuple[Any, Any]:
    parts = as_parts(observations)
    count = len(next(iter(parts.values())))
    rows = np.unique(np.linspace(0, count - 1, min(count, _MOST_OBSERVATIONS)).astype(int))
    chosen = {key: part[rows] for key, part in parts.items()}
    mean = {}
    for key, part in parts.items():
        is_box = _is_box(policy.observation_space, key)
        mean[key] = part.mean(axis=0, keepdims=True).astype(part.dtype) if is_box else part[:1]
    return _joined(chosen), _joined(mean)


def _is_box(space: spaces.Space, key: str) -> bool:
    return isinstance(space[key] if isinstance(space, spaces.Dict) else space, spaces.Box)


def _joined(parts: dict[str, Any]) -> Any:
    return parts[""] if parts.keys() == {""} else parts

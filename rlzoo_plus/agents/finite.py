"""Weights that are numbers: nothing else is evaluated or saved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.errors import RunError

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


def require_finite(agent: BaseAlgorithm) -> None:
    """Check all that an agent has learned.

    Raises:
        RunError: There is NaN or infinity in it.
    """
    name = _first_not_finite(agent)
    if name is not None:
        raise _diverged(agent, f"the weights ({name}) became NaN or inf")


def raise_if_diverged(agent: BaseAlgorithm, error: Exception) -> None:
    """Tell in our own words what torch says of NaN; it names neither cause nor step.

    Raises:
        RunError: The error comes from weights that have diverged.
    """
    require_finite(agent)
    # Weights that are finite, and so large that a distribution has no width any more.
    refused = re.match(r"Expected parameter (\w+) \(.* of distribution (\w+)", str(error))
    if isinstance(error, ValueError) and refused is not None:
        what = f"{refused[1]} of the policy's {refused[2]} distribution"
        raise _diverged(agent, f"{what} became NaN, inf or zero") from error


def has_lost_a_loss(agent: BaseAlgorithm) -> bool:
    """Tell whether the last update reported a loss that is no number; costs next to nothing."""
    values = agent.logger.name_to_value
    return any(
        name.endswith("loss") and not np.isfinite(value)
        for name, value in values.items()
        if isinstance(value, (float, np.floating))
    )


def _diverged(agent: BaseAlgorithm, what: str) -> RunError:
    return RunError(
        f"{what} by step {agent.num_timesteps:,}: training has diverged. A lower learning rate "
        "often helps."
    )


def _first_not_finite(agent: BaseAlgorithm) -> str | None:
    import torch

    for name, parameter in agent.policy.named_parameters():
        if not torch.isfinite(parameter).all():
            return name
    for name, buffer in agent.policy.named_buffers():
        # A mask may hold infinities.
        if buffer.is_floating_point() and torch.isnan(buffer).any():
            return name
    for name in agent._get_torch_save_params()[1]:
        if not torch.isfinite(_reach(agent, name)).all():
            return name
    normalizer = ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())
    for part in () if normalizer is None else (normalizer.mean, normalizer.var):
        if not all(np.isfinite(values).all() for values in part.values()):
            return "the statistics of the observations"
    return None


def _reach(agent: Any, path: str) -> Any:
    for part in path.split("."):
        agent = getattr(agent, part)
    return agent

"""Steps of Adam in one pass over all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.agents.recorded.optimizers import (
    _MOST_STEPS,
    FlatSteps,
    PlainSteps,
    Polyak,
    make_steps,
)


class FusedAdam(FlatSteps):
    """Makes the steps of Adam and AdamW with torch's fused kernel, on flat tensors."""

    averages = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str = ""
    ) -> None:
        super().__init__(optimizer, parameters, name)
        # Where gradients are copied to; views of several parameters at once may take their place.
        self.places = self.gradients

    def step(self, gradients: Sequence[Tensor], max_norm: float | None = None) -> None:
        """Make a step, with gradients clipped to a norm."""
        if not self.moments:
            self.begin()
            self._number = torch.zeros(())
            self._lists = [[self.flat], [self.gradient], *([m] for m in self.moments), []]
        torch._foreach_copy_(self.places, list(gradients))
        if max_norm is not None:
            scale = max_norm / (float(torch.linalg.vector_norm(self.gradient)) + 1e-6)
            if not scale >= 1.0:
                self.gradient.mul_(scale)
        self.steps += self.steps < _MOST_STEPS
        group: dict[str, Any] = self.group
        decoupled = bool(group.get("decoupled_weight_decay"))
        apply = torch._fused_adamw_ if decoupled else torch._fused_adam_
        beta1, beta2 = group["betas"]
        apply(
            *self._lists,
            [self._number.fill_(self.steps)],
            **{"lr": group["lr"], "beta1": beta1, "beta2": beta2, "eps": group["eps"]},
            **{"weight_decay": group["weight_decay"], "amsgrad": False, "maximize": False},
        )


def make_fast_steps(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str = ""
) -> PlainSteps:
    """Return what makes an optimizer's steps in the fewest passes."""
    steps = make_steps(optimizer, parameters, name)
    adam = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
    fits = adam and isinstance(steps, FlatSteps)
    return FusedAdam(optimizer, parameters, name) if fits else steps


class FastPolyak(Polyak):
    """Moves target networks in one pass."""

    def step(self, tau: float) -> None:
        """Move by a fraction `tau`."""
        torch._foreach_lerp_(self.changed, self._sources, tau)

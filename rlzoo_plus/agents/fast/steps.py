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
    """Makes the steps of Adam and AdamW with torch's fused kernel, on flat tensors.

    Attributes:
        places: Where gradients are written to. Views of those of several parameters at once may
            take their place.
    """

    is_recorded = False
    averages = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str = ""
    ) -> None:
        super().__init__(optimizer, parameters, name)
        self.places = self.gradients

    def begin(self) -> None:
        """Take over the optimizer's averages; it makes them at its first step."""
        if self.moments:
            return
        super().begin()
        self.changed = [*self.changed, *self.places]
        self._number = torch.zeros(())
        self._lists = [[self.flat], [self.gradient], *([m] for m in self.moments), []]

    def next_numbers(self, max_norm: float | None = None) -> dict[str, Any]:
        """Return what is different at each recorded step: steps are not recorded."""
        return {}

    def step(self, gradients: Sequence[Tensor], max_norm: float | None = None) -> None:
        """Make a step, with gradients clipped to a norm; without any, they are in their places."""
        self.begin()
        if gradients:
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

    def apply(self, tau: Any, rest: Any) -> None:
        """Move by a fraction `tau`; `rest` is what is left of one."""
        for target, source in zip(self._targets, self._sources, strict=True):
            target.lerp_(source, tau)

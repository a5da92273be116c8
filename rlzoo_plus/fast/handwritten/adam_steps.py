"""Steps of Adam in one pass over all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded.optimizers import FlatSteps, PlainSteps, Polyak, make_steps


class FusedAdam(FlatSteps):
    """Makes the steps of Adam and AdamW with torch's fused kernel, on flat tensors.

    Attributes:
        places: Where gradients are written to. Views of those of several parameters at once may
            take their place.
    """

    averages = ("exp_avg", "exp_avg_sq")
    varying = ("rate", "count")

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
        self._of_pieces = torch.zeros(len(self._pieces))
        self._each_piece = list(self._of_pieces.unbind())
        assert self._counts is not None
        self._count = self._counts[0]
        self.changed = [*self.changed, *self.places, self._counts, self._count]
        self.changed += [self._of_pieces, *self._each_piece]

    def _next(self) -> Sequence[float]:
        return float(self.group["lr"]), float(self.steps)

    def _publish_count(self) -> None:
        """Each step writes it itself."""

    def apply(
        self, gradients: Sequence[Tensor], numbers: SimpleNamespace, *, clips: bool = False
    ) -> None:
        """Make a step with these numbers; `begin` was called before."""
        for place, gradient in zip(self.places, gradients, strict=True):
            place.copy_(gradient)
        rate, count, max_norm = (getattr(numbers, name) for name in self.numbers)
        assert self._counts is not None
        self._counts.fill_(count)
        scale = None
        if clips:
            for piece, norm in zip(self._pieces, self._each_piece, strict=True):
                torch.linalg.vector_norm(piece[1], out=norm)
            norm = torch.linalg.vector_norm(self._of_pieces) + 1e-6
            scale = torch.clamp(norm / max_norm, min=1.0)  # what gradients are divided by
        group: dict[str, Any] = self.group
        decoupled = bool(group.get("decoupled_weight_decay"))
        apply: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
        beta1, beta2 = group["betas"]
        for flat, gradient, _, mean, square in self._pieces:
            apply(
                *([flat], [gradient], [mean], [square], [], [self._count]),
                **{"lr": rate, "beta1": beta1, "beta2": beta2, "eps": group["eps"]},
                **{"weight_decay": group["weight_decay"], "amsgrad": False, "maximize": False},
                grad_scale=scale,
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

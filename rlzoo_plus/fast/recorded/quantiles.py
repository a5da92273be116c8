"""The quantile Huber loss of TQC and QR-DQN: the bits of sb3-contrib's, in half the passes.

All pairs of current and target quantiles are some megabytes, so that each pass counts. What differs
in rounding are squares below 1e-38 in the value of the loss, no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch writes it


def quantile_huber_loss(current: Tensor, target: Tensor, *, sums: bool) -> Tensor:
    """Return the loss of quantiles, shapes (batch, ..., n) and (batch, ..., m).

    `sums` adds over the current quantiles, as in QR-DQN, instead of their mean, as in TQC.
    """
    pairs: Tensor = _Pairs.apply(current, target)  # type: ignore[no-untyped-call]
    return pairs.sum(dim=-2).mean() if sums else pairs.mean()


class _Pairs(torch.autograd.Function):
    """The loss of each pair, shape (..., n, m)."""

    @staticmethod
    def forward(ctx: Any, current: Tensor, target: Tensor) -> Tensor:
        above, given, n = current.unsqueeze(-1), target.unsqueeze(-2), current.shape[-1]
        difference = above - given
        share = ((torch.arange(n, dtype=current.dtype) + 0.5) / n).unsqueeze(-1)
        weight = torch.where(difference > 0, torch.abs(share - 1.0), share)
        ctx.save_for_backward(difference, weight)
        both = above.expand_as(difference), given.expand_as(difference)
        huber = F.smooth_l1_loss(both[0], both[1], reduction="none")
        return weight * huber

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        difference, weight = ctx.saved_tensors
        # Infinite differences have no slope: nought times infinity.
        slope = torch.clamp(difference, -1.0, 1.0).add_(difference, alpha=0.0)
        return (outer[0] * weight).mul_(slope).sum(dim=-1), None

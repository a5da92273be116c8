"""Matrix products of large layers in bfloat16: 8 bits of precision, and half the time.

Processors with AVX512_BF16 or AMX multiply twice as many numbers of 16 bits, or more, in the same
time. Products are summed in 32 bits; weights, activations, biases, losses and optimizers keep 32.
Small layers, such as the first and the last one, are not rounded: they take little time, and the
values of a critic come from the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

# A layer with fewer inputs or units is not rounded: rounding takes longer than it gains.
_FEWEST = 128
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


@dataclass(frozen=True)
class Operands:
    """What a layer multiplies, rounded.

    Attributes:
        x: Inputs, shape ([networks,] batch, inputs).
        weight: Shape ([networks,] units, inputs).
    """

    x: Tensor
    weight: Tensor

    def first(self, size: int) -> Operands:
        """Return those of the first samples alone, for one network."""
        return Operands(self.x[:size], self.weight)

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        given = torch.matmul(self.x, self.weight.mT).float()
        if bias is not None:
            given = given.add_(bias)
        return given if factor == 1 else given.mul_(factor)

    def round(self, gradient: Tensor) -> Tensor:
        """Return the gradient of what the layer gives as the other two take it."""
        return gradient.to(torch.bfloat16)

    def of_weight(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the weight."""
        return torch.matmul(gradient.mT, self.x).float()

    def of_input(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        return torch.matmul(gradient, self.weight).float()


_rounds = ContextVar("rounds", default=True)


def rounded(x: Tensor, weight: Tensor) -> Operands | None:
    """Return what a layer multiplies, None for a small layer or one of 64 bits."""
    if min(weight.shape[-2:]) < _FEWEST or weight.dtype != torch.float32 or not _rounds.get():
        return None
    return Operands(x.to(torch.bfloat16), weight.to(torch.bfloat16))


@contextmanager
def full_precision() -> Iterator[None]:
    """Make all products in full precision meanwhile."""
    token = _rounds.set(False)
    try:
        yield
    finally:
        _rounds.reset(token)


def lacks_bfloat16() -> bool:
    """Return whether this processor is known to have no instructions for products of bfloat16."""
    # An older torch cannot tell.
    able = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(able) and not any(able.get(name) for name in _INSTRUCTIONS)

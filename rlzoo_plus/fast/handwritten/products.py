"""The matrix products of a layer and of its gradients: in full precision, or in bfloat16.

Processors with AVX512_BF16 or AMX multiply twice as many numbers of 16 bits, or more, in the same
time. Products are summed in 32 bits; weights, activations, biases, losses and optimizers keep 32.
Small layers, such as the first and the last one, are not rounded: they take little time, and the
values of a critic come from the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded import onednn

# Layers with fewer units are computed with one column for each sample.
_NARROW = 32
# A layer with fewer inputs or units is not rounded: rounding takes longer than it gains.
_FEWEST = 128
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


@dataclass(frozen=True)
class Product:
    """What a layer multiplies.

    Attributes:
        x: Inputs, shape ([networks,] batch, inputs).
        weight: Shape ([networks,] units, inputs).
    """

    x: Tensor
    weight: Tensor

    def first(self, size: int) -> Product:
        """Return that of the first samples alone, for one network."""
        return replace(self, x=self.x[:size])

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        raise NotImplementedError

    def operand(self, gradient: Tensor) -> Tensor:
        """Return the gradient of what the layer gives as the other two take it."""
        return gradient

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight."""
        raise NotImplementedError

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        raise NotImplementedError


class Single(Product):
    """The product of one network, in full precision."""

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        x, weight = self.x, self.weight
        if bias is None:
            given = torch.mm(x, weight.t())
            return given if factor == 1 else given.mul_(factor)
        if len(weight) < _NARROW:
            return torch.addmm(bias[:, None], weight, x.t(), beta=factor, alpha=factor).t()
        return torch.addmm(bias, x, weight.t(), beta=factor, alpha=factor)

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight: the product with fewer rows is the faster one."""
        if operand.shape[1] <= self.x.shape[1]:
            return torch.mm(operand.t(), self.x)
        return torch.mm(self.x.t(), operand).t()

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        return torch.mm(operand, self.weight)


class Batched(Product):
    """The products of several networks in one batch, in full precision."""

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        weight = self.weight.transpose(1, 2)
        if bias is None:
            return torch.bmm(self.x, weight).mul_(factor)
        return torch.baddbmm(bias, self.x, weight, beta=factor, alpha=factor)

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight."""
        return torch.bmm(operand.transpose(1, 2), self.x)

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        if self.weight.shape[1] == 1:  # twice as fast as a product
            return operand * self.weight
        return torch.bmm(operand, self.weight)


class SingleByOneDNN(Single):
    """The product of one network by oneDNN, in full precision."""

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        given = onednn.linear(self.x, self.weight, bias)
        return given if factor == 1 else given.mul_(factor)

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight."""
        return onednn.linear(operand.t(), self.x.t())

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        return onednn.linear(operand, self.weight.t())


class BatchedByOneDNN(Batched):
    """The products of several networks by oneDNN, one after the other, in full precision."""

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        biases = [None] * len(self.weight) if bias is None else bias[:, 0]
        given = torch.stack(list(map(onednn.linear, self.x, self.weight, biases)))
        return given if factor == 1 else given.mul_(factor)

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight."""
        return torch.stack(list(map(onednn.linear, operand.mT, self.x.mT)))

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        return torch.stack(list(map(onednn.linear, operand, self.weight.mT)))


class Rounded(Product):
    """The product of one network or several, both sides in bfloat16."""

    def forward(self, bias: Tensor | None, factor: int) -> Tensor:
        """Return what the layer gives, times a factor."""
        given = torch.matmul(self.x, self.weight.mT).float()
        if bias is not None:
            given = given.add_(bias)
        return given if factor == 1 else given.mul_(factor)

    def operand(self, gradient: Tensor) -> Tensor:
        """Return the gradient of what the layer gives, rounded."""
        return gradient.to(torch.bfloat16)

    def of_weight(self, operand: Tensor) -> Tensor:
        """Return the gradient of the weight, in 16 bits: the optimizer copies it to its place."""
        return torch.matmul(operand.mT, self.x)

    def of_input(self, operand: Tensor) -> Tensor:
        """Return the gradient of the inputs."""
        return torch.matmul(operand, self.weight).float()


_BY_ONEDNN: dict[type[Product], type[Product]] = {
    Single: SingleByOneDNN,
    Batched: BatchedByOneDNN,
}
_rounds = ContextVar("rounds", default=True)


def product_of(exact: type[Product], x: Tensor, weight: Tensor, *, rounds: bool) -> Product:
    """Return a layer's product.

    Args:
        exact: Its kind in full precision.
        x: Inputs.
        weight: The layer's.
        rounds: Whether it is made in bfloat16 if the layer is large, and of 32 bits.
    """
    large = min(weight.shape[-2:]) >= _FEWEST and weight.dtype == torch.float32
    if rounds and large and _rounds.get():
        return Rounded(x.to(torch.bfloat16), weight.to(torch.bfloat16))
    return _BY_ONEDNN[exact](x, weight) if onednn.pays(x, weight) else exact(x, weight)


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
    able: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(able) and not any(able.get(name) for name in _INSTRUCTIONS)

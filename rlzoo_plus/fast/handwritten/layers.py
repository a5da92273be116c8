"""`Perceptron`: the forward and the backward pass of linear layers, with few calls.

The mathematics are those of `torch.nn`, the rounding is not: tanh comes from the logistic function,
which takes a fifth of its time, and products are made in the order that is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch writes it

from rlzoo_plus.fast.handwritten.products import Batched, Product, Single, product_of
from rlzoo_plus.fast.recorded.tape import NotRecordableError

aten = torch.ops.aten
# Gradients by the identity of their parameters.
Gradients = dict[int, Tensor]


@dataclass(frozen=True)
class _Activation:
    """An activation.

    Attributes:
        forward: Returns the result for what comes in.
        backward: Returns the gradient, given that of the result, what came in, and the result.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]


def _activation(module: nn.Module) -> _Activation | None:
    """Return an activation's passes, None for one that is not known."""
    made = _MAKERS.get(type(module))
    return None if made is None else made(module)


def _elu(module: Any) -> _Activation:
    alpha = module.alpha
    return _Activation(
        lambda x: F.elu(x, alpha),
        lambda g, _x, y: aten.elu_backward(g, alpha, 1.0, 1.0, True, y),
    )


def _leaky_relu(module: Any) -> _Activation:
    slope = module.negative_slope
    return _Activation(
        lambda x: F.leaky_relu(x, slope),
        lambda g, x, _y: aten.leaky_relu_backward(g, x, slope, False),
    )


def _gelu(module: Any) -> _Activation:
    kind = module.approximate
    return _Activation(
        lambda x: F.gelu(x, approximate=kind),
        lambda g, x, _y: aten.gelu_backward(g, x, approximate=kind),
    )


def _hardtanh(module: Any) -> _Activation:
    low, high = module.min_val, module.max_val
    return _Activation(
        lambda x: F.hardtanh(x, low, high),
        lambda g, x, _y: aten.hardtanh_backward(g, x, low, high),
    )


_TANH = _Activation(torch.tanh, lambda g, _x, y: aten.tanh_backward(g, y))
_MAKERS: dict[type, Callable[[Any], _Activation]] = {
    nn.Tanh: lambda _: _TANH,
    nn.ReLU: lambda _: _Activation(torch.relu, lambda g, _x, y: aten.threshold_backward(g, y, 0.0)),
    nn.Sigmoid: lambda _: _Activation(torch.sigmoid, lambda g, _x, y: aten.sigmoid_backward(g, y)),
    nn.SiLU: lambda _: _Activation(F.silu, lambda g, x, _y: aten.silu_backward(g, x)),
    nn.Mish: lambda _: _Activation(F.mish, lambda g, x, _y: aten.mish_backward(g, x)),
    nn.Identity: lambda _: _Activation(lambda x: x, lambda g, _x, _y: g),
    nn.ELU: _elu,
    nn.Hardtanh: _hardtanh,
    nn.LeakyReLU: _leaky_relu,
    nn.GELU: _gelu,
}


@dataclass(frozen=True)
class Pass:
    """What a backward pass needs of a forward pass.

    Attributes:
        products: What each layer multiplied.
        before: What each layer's activation was given.
        results: What came in, and what came out of each layer.
    """

    products: list[Product]
    before: list[Tensor]
    results: list[Tensor]

    @property
    def result(self) -> Tensor:
        """What came out of the last layer, shape ([networks,] batch, units)."""
        return self.results[-1]

    def first(self, size: int) -> Pass:
        """Return the pass of the first samples alone."""
        products = [product.first(size) for product in self.products]
        before, results = ([t[:size] for t in each] for each in (self.before, self.results))
        return Pass(products, before, results)


class Perceptron:
    """Linear layers, each with an activation or without."""

    def __init__(self, *modules: nn.Module, rounds: bool = False) -> None:
        """Find the layers.

        Args:
            modules: Layers and activations in their order, also nested.
            rounds: Whether products of large layers are made in bfloat16.

        Raises:
            NotRecordableError: A layer is of another kind.
        """
        self._rounds = rounds
        self.layers: list[tuple[nn.Linear, _Activation | None]] = []
        for module in _flat(modules):
            if type(module) is nn.Linear:
                self.layers.append((module, None))
                continue
            activation = _activation(module)
            if activation is None or not self.layers or self.layers[-1][1] is not None:
                raise NotRecordableError(f"the place of {type(module).__name__} is not known")
            self.layers[-1] = self.layers[-1][0], activation

    def forward(self, x: Tensor) -> Pass:
        """Compute the results for inputs of shape (batch, features)."""
        made = Pass([], [], [x])
        for linear, activation in self.layers:
            product = product_of(Single, x, linear.weight, rounds=self._rounds)
            x = _passed(made, product, linear.bias, activation)
        return made

    def backward(
        self,
        made: Pass,
        gradient: Tensor,
        gradients: Gradients | None,
        *,
        to_input: bool = False,
    ) -> Tensor | None:
        """Note the gradients of all parameters, and return that of the input if it is wanted.

        Args:
            made: The forward pass.
            gradient: That of the results.
            gradients: Receives them; None if those of the parameters are not wanted.
            to_input: Whether that of the input is wanted.
        """
        for k, (linear, activation) in reversed(list(enumerate(self.layers))):
            if activation is not None:
                gradient = activation.backward(gradient, made.before[k], made.results[k + 1])
            if gradients is not None and linear.bias is not None:
                gradients[id(linear.bias)] = gradient.sum(0)
            product = made.products[k]
            gradient = product.operand(gradient)
            if gradients is not None:
                gradients[id(linear.weight)] = product.of_weight(gradient)
            if k or to_input:
                gradient = product.of_input(gradient)
        return gradient if to_input else None


class Ensemble:
    """Perceptrons of the same shape and input: one batched product a layer for all of them.

    Their weights are views of one flat tensor, at the same distance from one network to the next,
    so that all weights of a layer are one view of it.
    """

    def __init__(self, networks: Sequence[nn.Module], *, rounds: bool = False) -> None:
        """Find the layers.

        Args:
            networks: The perceptrons.
            rounds: Whether products of large layers are made in bfloat16.

        Raises:
            NotRecordableError: They do not fit, or their weights lie otherwise.
        """
        self._rounds = rounds
        members = [Perceptron(network).layers for network in networks]
        self.layers: list[tuple[Tensor, Tensor | None, _Activation | None]] = []
        for layer in zip(*members, strict=True):
            linears, activations = zip(*layer, strict=True)
            weight = _stacked([linear.weight for linear in linears])
            bias = linears[0].bias
            if bias is not None:
                bias = _stacked([linear.bias for linear in linears]).unsqueeze(1)
            self.layers.append((weight, bias, activations[0]))

    def tensors(self) -> list[Tensor]:
        """Return all parameters, those of a layer in one tensor."""
        return [tensor for layer in self.layers for tensor in layer[:2] if tensor is not None]

    def of_flat(self, flat: Tensor) -> list[Tensor]:
        """Return views of another flat tensor that lie as `tensors` do in theirs."""
        return [
            torch.as_strided(flat, tensor.shape, tensor.stride(), tensor.storage_offset())
            for tensor in self.tensors()
        ]

    def forward(self, x: Tensor) -> Pass:
        """Compute the results, shape (networks, batch, units), for inputs (batch, features)."""
        x = x.expand(len(self.layers[0][0]), -1, -1)
        made = Pass([], [], [x])
        for weight, bias, activation in self.layers:
            product = product_of(Batched, x, weight, rounds=self._rounds)
            x = _passed(made, product, bias, activation)
        return made

    def backward(self, made: Pass, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of `tensors`, given that of the results."""
        found: list[list[Tensor]] = []
        for k, of_product, operand in self._gradients(made, gradient):
            both = [made.products[k].of_weight(operand)]
            if self.layers[k][1] is not None:
                both.append(of_product.sum(1, keepdim=True))
            found.append(both)
        return [tensor for both in reversed(found) for tensor in both]

    def backward_to_input(self, made: Pass, gradient: Tensor, first: int) -> Tensor:
        """Return the gradient of the columns of the input from `first` on."""
        *_, (_, of_product, _) = self._gradients(made, gradient)
        return torch.bmm(of_product, self.layers[0][0][:, :, first:]).sum(0)

    def _gradients(self, made: Pass, gradient: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield for each layer, the last first: number, gradient of the product, its operand."""
        for k in reversed(range(len(self.layers))):
            activation = self.layers[k][2]
            if activation is not None:
                gradient = activation.backward(gradient, made.before[k], made.results[k + 1])
            operand = made.products[k].operand(gradient)
            yield k, gradient, operand
            if k:
                gradient = made.products[k].of_input(operand)


def _passed(
    made: Pass, product: Product, bias: Tensor | None, activation: _Activation | None
) -> Tensor:
    """Return what comes out of a layer, and note it."""
    if activation is _TANH:
        # tanh(x) = 2 / (1 + exp(-2 x)) - 1
        given = x = torch.sigmoid(product.forward(bias, 2)).mul_(2).sub_(1)
    else:
        given = product.forward(bias, 1)
        x = given if activation is None else activation.forward(given)
    made.products.append(product)
    made.before.append(given)
    made.results.append(x)
    return x


def _stacked(parameters: Sequence[Tensor]) -> Tensor:
    """Return parameters of the same shape as one view of the flat tensor that they are parts of."""
    first, *others = (parameter.data for parameter in parameters)
    places = [tensor.storage_offset() for tensor in (first, *others)]
    distance = places[1] - places[0] if others else 0
    fits = all(
        tensor.shape == first.shape
        and tensor.is_contiguous()
        and tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and place == places[0] + k * distance
        for k, (tensor, place) in enumerate(zip((first, *others), places, strict=True))
    )
    if not fits:
        raise NotRecordableError("the weights of the critics are not in one tensor")
    size = (len(parameters), *first.shape)
    return torch.as_strided(first, size, (distance, *first.stride()), places[0])


def _flat(modules: Iterable[nn.Module]) -> Iterable[nn.Module]:
    for module in modules:
        if isinstance(module, nn.Sequential):
            yield from _flat(module)
        else:
            yield module

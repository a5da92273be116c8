"""`Perceptron`: the forward and the backward pass of linear layers, with few calls.

The mathematics are those of `torch.nn`, the rounding is not: tanh comes from the logistic function,
which takes a fifth of its time, and products are made in the order that is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch writes it

from rlzoo_plus.agents.recorded.tape import NotRecordableError

aten = torch.ops.aten
# Gradients by the identity of their parameters.
Gradients = dict[int, Tensor]
# Layers with fewer units are computed with one column for each sample.
_NARROW = 32


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


_TANH = _Activation(torch.tanh, lambda g, _x, y: aten.tanh_backward(g, y))
_MAKERS: dict[type, Callable[[Any], _Activation]] = {
    nn.Tanh: lambda _: _TANH,
    nn.ReLU: lambda _: _Activation(torch.relu, lambda g, _x, y: aten.threshold_backward(g, y, 0.0)),
    nn.Sigmoid: lambda _: _Activation(torch.sigmoid, lambda g, _x, y: aten.sigmoid_backward(g, y)),
    nn.SiLU: lambda _: _Activation(F.silu, lambda g, x, _y: aten.silu_backward(g, x)),
    nn.Mish: lambda _: _Activation(F.mish, lambda g, x, _y: aten.mish_backward(g, x)),
    nn.Identity: lambda _: _Activation(lambda x: x, lambda g, _x, _y: g),
    nn.ELU: _elu,
    nn.LeakyReLU: _leaky_relu,
    nn.GELU: _gelu,
}


@dataclass(frozen=True)
class Pass:
    """What a backward pass needs of a forward pass.

    Attributes:
        inputs: What came into each layer.
        before: What each layer's activation was given; None where nobody needs it.
        result: What came out, shape (batch, units).
    """

    inputs: list[Tensor]
    before: list[Tensor]
    result: Tensor


class Perceptron:
    """Linear layers, each with an activation or without.

    Raises:
        NotRecordableError: A layer is of another kind.
    """

    def __init__(self, *modules: nn.Module) -> None:
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
        inputs, before = [], []
        for linear, activation in self.layers:
            inputs.append(x)
            if activation is _TANH:
                # tanh(x) = 2 / (1 + exp(-2 x)) - 1
                x = torch.sigmoid(_linear(linear, x, 2)).mul_(2).sub_(1)
                before.append(x)
                continue
            given = _linear(linear, x)
            before.append(given)
            x = given if activation is None else activation.forward(given)
        return Pass(inputs, before, x)

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
        results = [*made.inputs[1:], made.result]
        for k, (linear, activation) in reversed(list(enumerate(self.layers))):
            if activation is not None:
                gradient = activation.backward(gradient, made.before[k], results[k])
            if gradients is not None:
                gradients[id(linear.weight)] = _of_weight(gradient, made.inputs[k])
                if linear.bias is not None:
                    gradients[id(linear.bias)] = gradient.sum(0)
            if k or to_input:
                gradient = torch.mm(gradient, linear.weight)
        return gradient if to_input else None


def _linear(linear: nn.Linear, x: Tensor, factor: int = 1) -> Tensor:
    """Return the results of a layer, times a factor."""
    weight, bias = linear.weight, linear.bias
    if bias is None:
        given = torch.mm(x, weight.t())
        return given if factor == 1 else given.mul_(factor)
    if len(weight) < _NARROW:
        return torch.addmm(bias[:, None], weight, x.t(), beta=factor, alpha=factor).t()
    return torch.addmm(bias, x, weight.t(), beta=factor, alpha=factor)


def _of_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a weight: the product whose rows are fewer is the faster one."""
    if gradient.shape[1] <= x.shape[1]:
        return torch.mm(gradient.t(), x)
    return torch.mm(x.t(), gradient).t()


def _flat(modules: Iterable[nn.Module]) -> Iterable[nn.Module]:
    for module in modules:
        if isinstance(module, nn.Sequential):
            yield from _flat(module)
        else:
            yield module

"""Bounds what building a network may allocate, by the weights that are there to fill it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

# Orthogonal initialisation works on copies of a layer, and target networks begin as copies.
_COPIES = 8
# Networks without weights of their own, e.g. features of the observation.
_FREE_TENSORS, _FREE_ELEMENTS = 1000, 2**20
_FACTORIES: frozenset[Callable[..., Any]] = frozenset(
    (
        torch.empty,
        torch.empty_strided,
        torch.zeros,
        torch.ones,
        torch.full,
        torch.rand,
        torch.randn,
        torch.eye,
        torch.arange,
        torch.linspace,
    )
)


class NetworkTooLargeError(Exception):
    """A network needs more parameters than there are weights for it."""


class AllocationLimit(TorchFunctionMode):
    """While it is entered, torch makes no more tensors than some weights can fill.

    Raises:
        NetworkTooLargeError: Before the tensor that would be too many is allocated.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._tensors = _FREE_TENSORS + _COPIES * len(weights)
        self._elements = _FREE_ELEMENTS + _COPIES * sum(v.size for v in weights.values())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Count what a factory is about to make, then let it."""
        kwargs = kwargs or {}
        if func in _FACTORIES:
            try:
                # The meta device has shapes without memory.
                planned = func(*args, **{**kwargs, "device": "meta", "out": None})
            except (RuntimeError, TypeError, OverflowError) as error:
                raise NetworkTooLargeError("it describes a layer of no possible size") from error
            self._tensors -= 1
            self._elements -= planned.numel()
            if self._tensors < 0 or self._elements < 0:
                raise NetworkTooLargeError("it describes a far larger network than it has")
        return func(*args, **kwargs)

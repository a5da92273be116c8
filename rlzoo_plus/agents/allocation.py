"""A limit on what building networks allocates, for those of the machine and of untrusted files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from rlzoo_plus.envs.fit import total_memory_bytes

# Orthogonal initialisation works on copies of a layer, and target networks begin as copies.
_COPIES = 8
# A weight in training: the number, its gradient and two moments, four bytes each.
_BYTES_OF_A_WEIGHT = 16
# Networks without weights of their own, e.g. features of the observation.
_FREE_TENSORS, _FREE_ELEMENTS = 1000, 2**20
_FACTORIES: frozenset[Callable[..., Any]] = frozenset(
    (
        *(torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full),
        *(torch.rand, torch.randn, torch.eye, torch.arange, torch.linspace),
    )
)


class NetworkTooLargeError(Exception):
    """A network needs more parameters than it may have."""


class AllocationLimit(TorchFunctionMode):
    """Context in which torch makes no more tensors than are allowed.

    Raises:
        NetworkTooLargeError: Before the tensor that would be too many is allocated.
    """

    def __init__(self, tensors: int, elements: int) -> None:
        super().__init__()
        self._tensors, self._elements = tensors, elements

    @classmethod
    def of_weights(cls, weights: Mapping[str, np.ndarray]) -> AllocationLimit:
        """Allow what these weights can fill."""
        elements = sum(value.size for value in weights.values())
        return cls(_FREE_TENSORS + _COPIES * len(weights), _FREE_ELEMENTS + _COPIES * elements)

    @classmethod
    def of_machine(cls) -> AllocationLimit:
        """Allow networks that can be trained in the memory of this machine."""
        total = total_memory_bytes()
        elements = sys.maxsize if total is None else total // _BYTES_OF_A_WEIGHT
        return cls(sys.maxsize, _FREE_ELEMENTS + elements)

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
                raise NetworkTooLargeError("it describes a far larger network")
        return func(*args, **kwargs)

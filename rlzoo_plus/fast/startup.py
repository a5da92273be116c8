"""Starts a training without PyTorch's compiler, and with threads that leave the core to others."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"
# How often an idle thread of PyTorch looks for work before it sleeps: some 40 microseconds, longer
# than the pause between two operations. GNU OpenMP's own 300,000 keep others from the core for
# milliseconds; among other programs, one operation then takes as long as their turns.
SPINS = ("GOMP_SPINCOUNT", "2000")
_OF_THE_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def before_torch() -> None:
    """Set what PyTorch reads as it is imported: how its threads wait."""
    # The number of threads, and so the bits, stay the same.
    if "torch" not in sys.modules and os.environ.keys().isdisjoint(_OF_THE_USER):
        os.environ.update([SPINS])


def import_compiler_late() -> None:
    """Put a stand-in in the place of PyTorch's compiler, unless it is imported already.

    Every optimizer imports it, only to mark what the compiler must leave alone. That takes longer
    than importing PyTorch itself, and some eighty megabytes.
    """
    if _COMPILER not in sys.modules:
        import torch

        stand_in = _LateCompiler(_COMPILER)
        stand_in.__spec__ = PathFinder.find_spec(_COMPILER, torch.__path__)
        sys.modules[_COMPILER] = stand_in
        vars(torch)["_dynamo"] = stand_in


class _LateCompiler(ModuleType):
    """Stands in for `torch._dynamo` until somebody needs more than marks."""

    def graph_break(self, *_args: Any, **_kwargs: Any) -> None:
        """Mark where a graph ends: without a compiler there is none."""

    def disable(self, fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Return a function of PyTorch's own as it is: nothing compiles it."""
        # PyTorch's own marks are the only ones without a wrapper.
        if fn is not None and kwargs.get("wrapping") is False:
            return fn
        return self._real().disable(fn, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Tools ask any module for such names; __path__ is for importing what is below it.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        real = self._real()
        if not hasattr(real, name):
            # A module below it, which only its own import makes an attribute.
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{self.__name__}.{name}")
        return getattr(real, name)

    def _real(self) -> ModuleType:
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
            vars(sys.modules["torch"]).pop("_dynamo", None)
        return importlib.import_module(_COMPILER)

"""Keeps PyTorch's compiler from being imported by trainings that compile nothing.

Every optimizer imports `torch._dynamo`, only to mark what the compiler must leave alone. That takes
as long as importing PyTorch itself, and some fifty megabytes. The stand-in here answers what
optimizers ask; whatever else anybody wants of the module imports it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"


class _LateCompiler(ModuleType):
    """Stands in for `torch._dynamo` until somebody needs more than marks."""

    def graph_break(self, *_args: Any, **_kwargs: Any) -> None:
        """Mark where a graph ends: without a compiler there is none."""

    def disable(self, fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Return a function of PyTorch's own as it is: nothing compiles it."""
        # PyTorch's own marks are the only ones without a wrapper.
        if fn is not None and kwargs.get("wrapping") is False:
            return fn
        return _real().disable(fn, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Tools ask any module for such names; __path__ is for importing what is below it.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(_real(), name)


def _real() -> ModuleType:
    """Import the module, and put it where the stand-in was."""
    if isinstance(sys.modules.get(_NAME), _LateCompiler):
        del sys.modules[_NAME]
        torch.__dict__.pop("_dynamo", None)
    return importlib.import_module(_NAME)


def import_compiler_late() -> None:
    """Put the stand-in in place, unless the compiler is imported already."""
    if _NAME not in sys.modules:
        stand_in = _LateCompiler(_NAME)
        stand_in.__spec__ = PathFinder.find_spec(_NAME, torch.__path__)
        sys.modules[_NAME] = stand_in
        vars(torch)["_dynamo"] = stand_in

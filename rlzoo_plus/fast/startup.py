"""Starts a training without what it does not use: the rest is imported where it is first used.

PyTorch and Stable-Baselines3 import much that few trainings touch. What is left out here costs as
much processor time as everything else before the first step; docs/performance.md has a list.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.fast import fast_math

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig

_COMPILER = "torch._dynamo"
_SHAPES = "torch._meta_registrations"
# They import each other in circles, which end well only if the first is _SHAPES.
_WITH_SHAPES = ("torch._decomp", "torch._prims", "torch._refs", "torch.utils._content_store")
_WRITER = "torch.utils.tensorboard"
# TensorBoard imports these to reach a store, which no run of ours writes its events to.
_STORES = ("boto3", "botocore", "botocore.exceptions", "fsspec")
_MANY = 1_000_000
# How often an idle thread of PyTorch looks for work before it sleeps: some 40 microseconds, longer
# than the pause between two operations. GNU OpenMP's own 300,000 keep others from the core for
# milliseconds; among other programs, one operation then takes as long as their turns.
SPINS = ("GOMP_SPINCOUNT", "2000")
_OF_THE_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_usual_thresholds: tuple[int, int, int] | None = None


def pause_gc() -> None:
    """Let Python's collector of cycles rest while libraries are imported: it finds nothing there.

    For commands only: `resume_gc` ends it.
    """
    global _usual_thresholds
    _usual_thresholds = gc.get_threshold()
    gc.set_threshold(_MANY)


def resume_gc() -> None:
    """End `pause_gc`, if it has begun; no later collection looks at what exists by now.

    The last ones, as the process ends, are the longest.
    """
    global _usual_thresholds
    if _usual_thresholds is not None:
        gc.freeze()
        gc.set_threshold(*_usual_thresholds)
        _usual_thresholds = None


def import_libraries(config: RunConfig) -> None:
    """Import PyTorch and Stable-Baselines3, without what a run of this configuration does not use.

    Left out of PyTorch is what tensors without numbers (`device="meta"`) need; tracing and
    compiling import it themselves. A run with code of the user gets all of it.

    Raises:
        ConfigError: This process cannot compute as `fast_math` says.
    """
    if config.fast_math:
        fast_math.load_switch(compiles=True)
    if "torch" not in sys.modules:
        _import_torch(config)
    fast_math.require(fast=config.fast_math)


def _import_torch(config: RunConfig) -> None:
    if os.environ.keys().isdisjoint(_OF_THE_USER):
        # Read as the library is loaded. The number of threads, and so the bits, stay the same.
        os.environ.update([SPINS])
    with contextlib.ExitStack() as stack:
        if not own_code(config) and find_spec("torch") is not None:
            stack.enter_context(_known_frames())
            stack.enter_context(_left_out({_SHAPES: ModuleType(_SHAPES)}))
            stack.callback(sys.meta_path.insert, 0, _ShapesFirst())
        import torch  # noqa: F401
    names = {name: _LateName(_WRITER, name) for name in ("SummaryWriter", "hparams")}
    parts = {_WRITER: _module_with(_WRITER, names), f"{_WRITER}.summary": _module_with("", names)}
    with _left_out(parts if find_spec("tensorboard") is not None else {}):
        import stable_baselines3.common.utils  # noqa: F401


def import_compiler_late() -> None:
    """Put a stand-in in the place of PyTorch's compiler, unless it is imported already.

    Every optimizer imports it, only to mark what the compiler must leave alone. That takes as long
    as importing PyTorch itself, and some fifty megabytes.
    """
    if _COMPILER not in sys.modules:
        import torch

        stand_in = _LateCompiler(_COMPILER)
        stand_in.__spec__ = PathFinder.find_spec(_COMPILER, torch.__path__)
        sys.modules[_COMPILER] = stand_in
        vars(torch)["_dynamo"] = stand_in


class _LateModule(ModuleType):
    """Stands in for a module until somebody needs what it has."""

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
        return importlib.import_module(self.__name__)


class _LateCompiler(_LateModule):
    """Stands in for `torch._dynamo` until somebody needs more than marks."""

    def graph_break(self, *_args: Any, **_kwargs: Any) -> None:
        """Mark where a graph ends: without a compiler there is none."""

    def disable(self, fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Return a function of PyTorch's own as it is: nothing compiles it."""
        # PyTorch's own marks are the only ones without a wrapper.
        if fn is not None and kwargs.get("wrapping") is False:
            return fn
        return self._real().disable(fn, *args, **kwargs)

    def _real(self) -> ModuleType:
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
            vars(sys.modules["torch"]).pop("_dynamo", None)
        return super()._real()


class _LateName:
    """Stands in for a class or a function of `torch.utils.tensorboard` until it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        module = sys.modules.get(self._module)
        if module is None:
            stores = {name: _LateModule(name) for name in _STORES if _is_late(name)}
            with _left_out(stores):
                module = importlib.import_module(self._module)
        found = getattr(module, self._name, None)
        return found or getattr(importlib.import_module(f"{self._module}.summary"), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._real())

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)


class _ShapesFirst(MetaPathFinder, Loader):
    """Imports what was left out of PyTorch before the first module that belongs to it."""

    def __init__(self) -> None:
        self._is_done = False
        self._spec: ModuleSpec | None = None

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a module that is imported on the way as it is; nothing is found here."""
        if self._is_done or not f"{fullname}.".startswith(tuple(f"{n}." for n in _WITH_SHAPES)):
            return None
        self._is_done = True
        importlib.import_module(_SHAPES)
        module = sys.modules.get(fullname)
        if module is None:
            return None
        # Python would execute again what a module's own specification says.
        self._spec, module.__spec__ = module.__spec__, ModuleSpec(fullname, self)
        return module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, which is imported already."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is."""
        module.__spec__ = self._spec


def _is_late(name: str) -> bool:
    """Tell whether a module is installed, and not imported yet."""
    first = name.partition(".")[0]
    return first not in sys.modules and find_spec(first) is not None


def _module_with(name: str, names: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module


@contextlib.contextmanager
def _left_out(stand_ins: dict[str, ModuleType]) -> Iterator[None]:
    """Import others without these modules: whoever imports them afterwards gets the real ones."""
    placed = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name, module in placed.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            above, _, last = name.rpartition(".")
            # `from torch import x` has made it an attribute of the package.
            if above in sys.modules and vars(sys.modules[above]).get(last) is module:
                delattr(sys.modules[above], last)


@contextlib.contextmanager
def _known_frames() -> Iterator[None]:
    """Let `inspect` find the module of a frame by its name, not among the files of all modules.

    PyTorch asks for it as it registers functions; to find out, the path of each of a thousand
    modules is resolved.
    """
    usual = inspect.getmodule

    def getmodule(thing: object, _filename: str | None = None) -> ModuleType | None:
        if isinstance(thing, FrameType):
            module = sys.modules.get(thing.f_globals.get("__name__", ""))
            if getattr(module, "__file__", None) == thing.f_code.co_filename:
                return module
        return usual(thing, _filename)

    inspect.getmodule = getmodule
    try:
        yield
    finally:
        inspect.getmodule = usual

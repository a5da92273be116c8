"""`Unchanged`: tells in a few microseconds whether a network still has the parts it had."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any

from torch import Tensor, nn

# Where only known code has the agent, it is looked at once in so many times.
_SELDOM = 64
# Parts of a module by name; what is called around it.
_PARTS = ("_modules", "_parameters", "_buffers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Unchanged:
    """What a recording of a network holds on to.

    The numbers of its weights may change in place, and `training`. Other tensors, modules, hooks,
    methods or settings make the recording invalid.

    Attributes:
        network: The network.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._modules = [vars(module) for module in network.modules()]
        held = [own[name] for own in self._modules for name in _PARTS]
        called = [own[name] for own in self._modules for name in _HOOKS]
        self._dicts = [*self._modules, *held, *called]
        self._sizes = [*map(len, self._dicts)]
        self._parts = _Entries((part, name) for part in held for name in part)
        self._settings = _Entries(
            (own, name) for own in self._modules for name in own if name != "training"
        )
        self._tensors = [value for value in self._parts.values if isinstance(value, Tensor)]
        self._addresses = [*map(Tensor.data_ptr, self._tensors)]
        self._learned = [tensor.requires_grad for tensor in self._tensors]
        # The modules that `set_training_mode` reaches.
        self._switched: list[dict[str, Any]] | None = None

    def holds(self) -> bool:
        """Return whether all is as it was; a setting that was given another value is not seen."""
        return (
            [*map(len, self._dicts)] == self._sizes
            and self._parts.are_same()
            and [*map(Tensor.data_ptr, self._tensors)] == self._addresses
        )

    def holds_all(self) -> bool:
        """Return whether all is as it was, in some more microseconds."""
        return (
            self.holds()
            and self._settings.are_same()
            and [tensor.requires_grad for tensor in self._tensors] == self._learned
        )

    def set_training(self, mode: bool) -> None:
        """Do what `set_training_mode` of the network does, which leaves target networks alone."""
        if self._switched is None:
            self._switched = self._find_switched()
        for own in self._switched:
            own["training"] = mode

    def _find_switched(self) -> list[dict[str, Any]]:
        network: Any = self.network
        seen = []
        for mode in (True, False):
            network.set_training_mode(mode)
            seen.append([own["training"] for own in self._modules])
        return [own for own, on, off in zip(self._modules, *seen, strict=True) if on and not off]


class Looks:
    """Tells when to look whether all is as it was.

    Looking reads some hundred objects from memory, which the caches no longer hold after an update.
    """

    def __init__(self) -> None:
        self._training: object | None = None
        self._left = 0

    def due(self, training: object | None) -> bool:
        """Return whether it is time.

        Args:
            training: Identifies a training in which only known code has the agent; None if other
                code may have changed it.
        """
        if training is None or training is not self._training or not self._left:
            self._training, self._left = training, _SELDOM
            return True
        self._left -= 1
        return False


class _Entries:
    """Entries of dictionaries, and what they were."""

    def __init__(self, places: Iterable[tuple[dict[str, Any], str]]) -> None:
        pairs = list(places)
        self._owners = [owner for owner, _ in pairs]
        self._names = [name for _, name in pairs]
        self.values = [owner[name] for owner, name in pairs]

    def are_same(self) -> bool:
        return all(map(is_, map(dict.get, self._owners, self._names), self.values))

"""`Parts`: observations as separate tensors, as a recording reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gymnasium import spaces


class Parts:
    """The parts of observations: those of a dictionary, or the one that they are.

    Attributes:
        names: The keys, None if observations are no dictionary.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.names = list(space.spaces) if isinstance(space, spaces.Dict) else None

    def split(self, observations: Any) -> list[Any]:
        """Return the parts in their order."""
        return [observations] if self.names is None else [observations[n] for n in self.names]

    def join(self, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return observations of the first tensors, and the other tensors."""
        if self.names is None:
            return tensors[0], tensors[1:]
        count = len(self.names)
        return dict(zip(self.names, tensors[:count], strict=True)), tensors[count:]


def named(name: str, observations: Any) -> dict[str, Any]:
    """Return the parts by name: `name[goal]` is part `goal` of a dictionary."""
    if isinstance(observations, Mapping):
        return {f"{name}[{part}]": value for part, value in observations.items()}
    return {name: observations}


def joined(tensors: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return what `named` has taken apart."""
    found: dict[str, Any] = {}
    for name, tensor in tensors:
        whole, is_part, part = name.partition("[")
        if is_part:
            found.setdefault(whole, {})[part[:-1]] = tensor
        else:
            found[name] = tensor
    return found

"""The values of a configuration by dotted key, with what a trial has drawn on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


class Values:
    """A configuration that keys are looked up in."""

    def __init__(self, fixed: Mapping[str, Any]) -> None:
        """Start with a configuration, nested or by dotted key."""
        self._fixed = fixed
        self._drawn: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        """Put a drawn value on top."""
        self._drawn[key] = value

    def has_drawn(self, key: str) -> bool:
        """Tell whether the key itself was drawn."""
        return key in self._drawn

    def has(self, key: str) -> bool:
        """Tell whether the key has a value, be it null."""
        return self._find(key) is not _ABSENT

    def get(self, key: str) -> Any:
        """Return the key's value, None if it has none."""
        value = self._find(key)
        return None if value is _ABSENT else value

    def keys(self) -> list[str]:
        """Return all keys of single values."""
        return [*self._drawn, *_leaves(self._fixed, "")]

    def _find(self, key: str) -> Any:
        found = _below(self._drawn, key)
        return _below(self._fixed, key) if found is _ABSENT else found


def ancestors(key: str) -> list[str]:
    """Return the keys above a dotted one: `a.b.c` -> `a.b`, `a`."""
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def are_related(first: str, second: str) -> bool:
    """Tell whether two keys are the same or one lies below the other."""
    return first == second or first in ancestors(second) or second in ancestors(first)


def _below(values: Mapping[str, Any], key: str) -> Any:
    if key in values:
        return values[key]
    for above in ancestors(key):
        inner = values.get(above)
        if isinstance(inner, Mapping):
            return _below(inner, key.removeprefix(f"{above}."))
    return _ABSENT


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"

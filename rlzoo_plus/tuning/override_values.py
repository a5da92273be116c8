"""Configuration values: as text of Hydra's command line, and by dotted key."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import IntervalSweep, Override, Quote, QuotedString

from rlzoo_plus.errors import ConfigError, unknown_name

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_override(text: str) -> Override:
    """Parse `key=value` as Hydra does, with its errors, but keep the type of interval ends."""
    return _parser().parse_override(text)


def value_text(value: Any) -> str:
    """Return a value so that `key=<text>` on a command line gives it back, or raise ValueError."""
    text = _text(value)
    # Parsing takes a millisecond, and numbers are beyond doubt.
    if isinstance(value, (str, list, tuple, Mapping)) and not same_value(_meaning(text), value):
        raise ValueError(f"{value!r} cannot be written on a command line")
    return text


def same_value(first: Any, second: Any) -> bool:
    """Compare values; unlike Python, true and 1 differ, and unlike YAML, 1 and 1.0 do not."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same_value(first[k], second[k]) for k in first)
    return bool(first == second)


@cache
def _parser() -> OverridesParser:
    def interval(start: int | float, end: int | float) -> IntervalSweep:
        return IntervalSweep(start=start, end=end)

    functions = create_functions()
    # Hydra's own makes floats of both ends, and interval(1, 8) is to be whole numbers.
    functions.functions["interval"] = interval
    return OverridesParser(functions)


@lru_cache(maxsize=1024)
def _meaning(text: str) -> Any:
    return parse_override(f"key={text}").value()


def _text(value: Any) -> str:
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, (Mapping, list, tuple)):
        value = item()  # a NumPy number
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(int(value))
        case float() if math.isfinite(value):
            return repr(float(value))
        case str() if "${" in value:
            raise ValueError(f"{value!r} holds an interpolation")
        case str():
            is_plain = _PLAIN.fullmatch(value) and isinstance(_meaning(value), str)
            return value if is_plain else QuotedString(value, Quote.single).with_quotes()
        case list() | tuple():
            return f"[{','.join(map(_text, value))}]"
        case Mapping() if all(isinstance(key, str) and _KEY.fullmatch(key) for key in value):
            return "{" + ",".join(f"{key}:{_text(item)}" for key, item in value.items()) + "}"
        case _:
            raise ValueError(f"{value!r} is no finite number, text, list or mapping of them")


_ABSENT = object()


class Values:
    """A configuration, nested or by dotted key, with drawn values on top of it."""

    def __init__(self, fixed: Mapping[str, Any]) -> None:
        self._fixed = fixed
        self.drawn: dict[str, Any] = {}

    def has(self, key: str) -> bool:
        """Return whether the key has a value, which may be null."""
        return self.get(key, _ABSENT) is not _ABSENT

    def get(self, key: str, default: Any = None) -> Any:
        """Return the key's value, the default if it has none."""
        found = _below(self.drawn, key)
        found = _below(self._fixed, key) if found is _ABSENT else found
        return default if found is _ABSENT else found

    def keys(self) -> list[str]:
        """Return all keys of single values."""
        return [*self.drawn, *dict(_leaves(self._fixed))]


def ancestors(key: str) -> list[str]:
    """Return the keys above a dotted one: `a.b.c` -> `a.b`, `a`."""
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def are_related(first: str, second: str) -> bool:
    """Return whether two keys are the same or one is below the other."""
    return first == second or first in ancestors(second) or second in ancestors(first)


def _below(values: Mapping[str, Any], key: str) -> Any:
    if key in values:
        return values[key]
    for above in ancestors(key):
        inner = values.get(above)
        if isinstance(inner, Mapping):
            return _below(inner, key.removeprefix(f"{above}."))
    return _ABSENT


def _leaves(
    values: Mapping[str, Any], prefix: str = "", parts: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys with their values; a mapping with one of some parts is a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value and not set(value) & set(parts):
            yield from _leaves(value, f"{prefix}{key}.", parts)
        else:
            yield f"{prefix}{key}", value


PARTS = ("space", "when", "at_least", "at_most")


def by_key(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a space by their configuration keys.

    In a file a key has dots. Hydra reads `hpo.space.network.net_arch=null` on a command line as
    nested mappings; such an entry replaces the file's.
    """
    typed = {
        key: entry
        for key, entry in entries.items()
        if isinstance(entry, Mapping) and entry and not set(entry) & set(PARTS)
    }
    found = {str(key): entry for key, entry in entries.items() if key not in typed}
    for key, entry in _leaves(typed, parts=PARTS):
        if entry is None and key not in found:
            raise ConfigError(f"hpo.space.{key}=null: {unknown_name('key', key, list(found))}")
        found[key] = entry
    return found

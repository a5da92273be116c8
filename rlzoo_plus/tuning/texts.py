"""Values as Hydra's command line writes them, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import IntervalSweep, Override

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_override(text: str) -> Override:
    """Parse `key=value` as Hydra does, except that the ends of an interval keep their type.

    Raises:
        HydraException: It cannot be parsed.
    """
    return _parser().parse_override(text)


def value_text(value: Any) -> str:
    """Return a value so that `key=<text>` on a command line gives it back.

    Raises:
        ValueError: No such text exists.
    """
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
        return first.keys() == second.keys() and all(
            same_value(value, second[key]) for key, value in first.items()
        )
    return bool(first == second)


@cache
def _parser() -> OverridesParser:
    from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions

    functions = create_functions()
    # Hydra's own makes floats of both ends, and interval(1, 8) is to be whole numbers.
    functions.functions["interval"] = _interval
    return OverridesParser(functions)


@lru_cache(maxsize=1024)
def _meaning(text: str) -> Any:
    return parse_override(f"key={text}").value()


def _interval(start: int | float, end: int | float) -> IntervalSweep:
    from hydra.core.override_parser.types import IntervalSweep

    return IntervalSweep(start=start, end=end)


def _text(value: Any) -> str:
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, (Mapping, list, tuple)):
        value = item()  # a number of NumPy's
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(int(value))
        case float() if math.isfinite(value):
            return repr(float(value))
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{','.join(map(_text, value))}]"
        case Mapping() if all(isinstance(key, str) and _KEY.fullmatch(key) for key in value):
            return "{" + ",".join(f"{key}:{_text(item)}" for key, item in value.items()) + "}"
        case _:
            raise ValueError(f"{value!r} is no finite number, text, list or mapping of them")


def _string(value: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    if "${" in value:
        raise ValueError(f"{value!r} holds an interpolation")
    is_plain = _PLAIN.fullmatch(value) and isinstance(_meaning(value), str)
    return value if is_plain else QuotedString(value, Quote.single).with_quotes()

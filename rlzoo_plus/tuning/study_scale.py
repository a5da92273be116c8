"""Where the values of a parameter lie on an axis: numbers, shares close to 1, and categories."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.analysis.style import escaped
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.tuning.dimensions import is_number

_MOST_TICKS, _LONGEST_VALUE, _TOO_LARGE = 6, 12, 1e100
# A value's range from which on it is drawn on a logarithmic axis.
_WIDE = 20.0


@dataclass(frozen=True)
class Scale:
    """Where the values of a parameter lie on an axis."""

    categories: tuple[str, ...] = ()  # Of numbers there are none
    numbers: tuple[float, ...] = ()  # In their order, each once
    kind: str = "linear"  # Or `log`; `logit` for shares that come close to 1, such as gamma

    @classmethod
    def of(cls, values: Iterable[Any], kind: str | None = None) -> Scale:
        """Return the scale of some values; those that are missing are None.

        Without a kind, numbers that span orders of magnitude get a logarithmic one.
        """
        known = [value for value in values if value is not None]
        numbers = [float(value) for value in known if is_number(value)]
        if len(numbers) < len(known):
            return cls(categories=tuple(sorted({_text(value) for value in known})))
        finite = sorted({number for number in numbers if is_finite(number)})
        low, high = (finite[0], finite[-1]) if finite else (0.0, 0.0)
        if kind is None and low > 0 and high / low >= _WIDE:
            kind = "log"
        fits = {"log": 0 < low < high, "logit": 0 < low < high < 1}
        return cls((), tuple(finite), kind if kind and fits.get(kind) else "linear")

    @property
    def low(self) -> float:
        """The first place on the axis."""
        return self.numbers[0] if self.numbers else 0.0

    @property
    def high(self) -> float:
        """The last place on the axis."""
        return self.numbers[-1] if self.numbers else max(len(self.categories) - 1.0, 0.0)

    def position(self, value: Any) -> float | None:
        """Return the place of a value in the unit of the axis, None if it has none."""
        if value is None:
            return None
        if self.categories:
            return float(self.categories.index(_text(value)))
        return float(value) if is_finite(value) else None

    def share(self, position: float | None) -> float:
        """Return a place between 0 and 1, NaN if there is none."""
        if position is None:
            return math.nan
        place, low, high = (self._stretched(each) for each in (position, self.low, self.high))
        return (place - low) / (high - low) if high > low else 0.5

    def _stretched(self, position: float) -> float:
        if self.kind == "linear":
            return position
        return math.log(position / (1 - position) if self.kind == "logit" else position)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and what is written there: a few, or the ends."""
        if self.categories:
            step = -(-len(self.categories) // _MOST_TICKS)
            return [(float(n), text) for n, text in enumerate(self.categories)][::step]
        places = list(dict.fromkeys((*self.numbers[:1], *self.numbers[-1:])))
        if len(self.numbers) <= _MOST_TICKS and all(map(float.is_integer, self.numbers)):
            places = list(self.numbers)
        elif self.kind == "logit":
            nines = [1 - 0.1**n for n in range(1, 8)]
            inside = [nine for nine in nines if self.low <= nine <= self.high]
            places = inside if len(inside) > 1 else places
        digits = 7 if self.kind == "logit" else 3
        return [(place, f"{place:.{digits}g}") for place in places]


def scale_of_parameter(name: str, kind: str) -> str:
    """Return the scale of a parameter's values, e.g. of `log2(n_steps)`, from that of its draws."""
    if name.startswith("one_minus("):
        return "logit" if kind == "log" else kind
    return "log" if name.startswith("log2(") else kind


def is_finite(number: float) -> bool:
    """Return whether a number can be drawn: it is not NaN, nor near what would overflow."""
    return abs(number) < _TOO_LARGE


def _text(value: Any) -> str:
    return escaped(printable(value, _LONGEST_VALUE))

"""Values of the first members, and the changed values of one that goes on from another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlzoo_plus.timetravel.branch_rules import NET_ARCH, is_wider, may_change
from rlzoo_plus.tuning.dimensions import Dimension, Kind
from rlzoo_plus.tuning.population_settings import PopulationSettings
from rlzoo_plus.tuning.space import Space

Params = dict[str, Any]


class Values:
    """Suggests parameters as a trial of Optuna does: those that are known, else drawn ones.

    Attributes:
        number: As of a trial.
        params: What was suggested.
    """

    def __init__(self, number: int, known: Mapping[str, Any], rng: np.random.Generator) -> None:
        """Take what is known; `rng` draws the rest."""
        self.number = number
        self.params: Params = {}
        self._known, self._rng = known, rng

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number in a range."""
        value = self._known.get(name)
        if not isinstance(value, (int, float)):
            value = self._between(low, high, log=log)
        value = min(max(float(value), low), high)
        if step is not None:
            value = min(low + step * round((value - low) / step), high)
        self.params[name] = value
        return value

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Return a whole number in a range."""
        value = self._known.get(name)
        if not isinstance(value, (int, float)):
            # Each whole number has the same share of the range.
            value = self._between(low - 0.5 * (not log), high + 0.5 * (not log), log=log)
        place = round((min(max(value, low), high) - low) / step)
        return int(self._keep(name, low + step * min(place, (high - low) // step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of some choices."""
        value = self._known.get(name, math.nan)
        if value not in choices:
            value = choices[int(self._rng.integers(len(choices)))]
        return self._keep(name, value)

    def _between(self, low: float, high: float, *, log: bool) -> float:
        if log:
            return math.exp(self._rng.uniform(math.log(low), math.log(high)))
        return float(self._rng.uniform(low, high))

    def _keep(self, name: str, value: Any) -> Any:
        self.params[name] = value
        return value


def changed(
    space: Space,
    params: Mapping[str, Any],
    overrides: Sequence[str],
    settings: PopulationSettings,
    rng: np.random.Generator,
) -> Params:
    """Return parameters near those of another member; what its checkpoint holds stays, or grows.

    Args:
        space: The search space.
        params: The other's parameters.
        overrides: Its overrides.
        settings: By how much they change.
        rng: Decides.
    """
    found = dict(params)
    for dimension in space.dimensions:
        name = dimension.name
        if dimension.key == NET_ARCH:
            wider = wider_than(dimension, found.get(name))
            if settings.grow and wider and rng.random() < settings.grow:
                found[name] = wider[int(rng.integers(len(wider)))]
            continue
        is_open = name in found and _is_open(dimension, overrides)
        if not is_open:
            continue
        if rng.random() < settings.redraw:
            del found[name]
        else:
            found[name] = _near(dimension, found[name], settings.factor, rng)
    return found


def wider_than(dimension: Dimension, param: Any) -> list[Any]:
    """Return the parameters of wider networks than that of one; what null means is not known."""
    params = dimension.params()
    if param not in params or (old := dimension.value(param)) is None:
        return []
    values = {one: dimension.value(one) for one in params if one != param}
    return [one for one, new in values.items() if new is not None and is_wider(old, new)]


def _is_open(dimension: Dimension, overrides: Sequence[str]) -> bool:
    """Return whether a branch may change the key of a dimension, whatever its value becomes."""
    now = [text.partition("=")[2] for text in overrides if text.startswith(f"{dimension.key}=")]
    old: Any = now[-1] if now else None
    # A coefficient that is learned stays, a number may become another number.
    if old is not None and dimension.kind is Kind.CHOICE:
        return all(may_change(dimension.key, old, choice) for choice in dimension.choices)
    return may_change(dimension.key, 0, 1)


def _near(dimension: Dimension, value: Any, factor: float, rng: np.random.Generator) -> Any:
    """Return a value near another one of a dimension."""
    up = bool(rng.random() < 0.5)
    if dimension.kind is Kind.CHOICE:
        params = dimension.params()
        place = params.index(value) + (1 if up else -1) if value in params else 0
        return params[min(max(place, 0), len(params) - 1)]
    if dimension.transform == "pow2":
        return value + (1 if up else -1)
    near = value * factor if up else value / factor
    if dimension.kind is Kind.INT and round(near) == value:
        near = value + (1 if up else -1)
    return near

"""Distributions as plain configuration: ``{"uniform": [0.8, 1.2]}`` and the like."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NORMAL_REACH = 3.0
"""Standard deviations at which a normal distribution is cut off."""

_FORMS = {
    "constant": "{constant: 1.2} or just 1.2",
    "uniform": "{uniform: [0.8, 1.2]}",
    "log_uniform": "{log_uniform: [0.5, 2.0]}, both above 0",
    "normal": "{normal: 0.1} about the nominal value, or {normal: [mean, deviation]}",
    "choice": "{choice: [0, 1, 2]}",
}


def known_name(where: str, name: object, known: Collection[str]) -> str:
    """Return a known name; for any other raise a ValueError that proposes the closest one."""
    if isinstance(name, str) and name in known:
        return name
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{where}: {name!r} is unknown.{hint} Known: {', '.join(known)}.")


def read_number(
    where: str, value: object, at_least: float = -np.inf, at_most: float = np.inf
) -> float:
    """Return a finite number within bounds.

    Raises:
        ValueError: If it is anything else.
    """
    # True is a number to Python, and a slip in a configuration.
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        if at_least <= number <= at_most and np.isfinite(number):
            return number
    bound = "" if at_least == -np.inf else f" of at least {at_least:g}"
    bound += "" if at_most == np.inf else f" and at most {at_most:g}"
    raise ValueError(f"{where}={value!r} must be a number{bound}. Set for example {where}=1.0.")


@dataclass(frozen=True)
class Distribution:
    """What a value is drawn from."""

    draw: Callable[[np.random.Generator, int | None], float | NDArray[np.float64]]
    """Draws one value, or an array of them if the shape is given."""
    low: float
    """The lowest value that it can draw."""
    high: float
    """The highest."""
    whole: bool = False
    """Whether it draws whole numbers only."""
    each: bool = False
    """Whether every link or joint is drawn separately."""


def read_distribution(where: str, value: object, nominal: float) -> Distribution:
    """Return the distribution that a configuration states.

    Args:
        where: Name of the entry, for the message.
        value: A number, or a mapping of one kind to its numbers, with ``each: true`` if wanted.
        nominal: Mean of a normal distribution that is given its deviation alone.

    Raises:
        ValueError: If the configuration is not valid.
    """
    if not isinstance(value, Mapping):
        value = {"constant": value}
    entries = dict(value)
    each = entries.pop("each", False)
    for kind in entries:
        known_name(where, kind, _FORMS)
    if len(entries) != 1 or not isinstance(each, bool):
        forms = ", ".join(_FORMS.values())
        raise ValueError(
            f"{where}={value!r} must name one distribution, and each must be true or false. "
            f"Write one of: {forms}."
        )
    ((kind, given),) = entries.items()
    sequence = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    values: list[Any] = list(given) if sequence else [given]
    numbers = [read_number(f"{where}.{kind}", number) for number in values]
    found = _distribution(kind, numbers, nominal)
    if found is None:
        raise ValueError(f"{where}.{kind}={given!r} does not fit. Write {_FORMS[kind]}.")
    return replace(found, each=each)


def _distribution(kind: str, numbers: list[float], nominal: float) -> Distribution | None:
    """Return the distribution of a kind with these parameters, None if they do not fit."""
    match kind, numbers:
        case "constant", [value]:
            return Distribution(
                lambda rng, size: value if size is None else np.full(size, value),
                value,
                value,
                value.is_integer(),
            )
        case "uniform", [low, high] if low <= high:
            return Distribution(lambda rng, size: rng.uniform(low, high, size), low, high)
        case "log_uniform", [low, high] if 0 < low <= high:
            first, last = np.log(numbers)
            return Distribution(lambda rng, size: np.exp(rng.uniform(first, last, size)), low, high)
        case "normal", [deviation] | [_, deviation] if deviation >= 0:
            mean = nominal if len(numbers) == 1 else numbers[0]
            reach = _NORMAL_REACH * deviation

            def draw(rng: np.random.Generator, size: int | None) -> Any:
                deviations = np.clip(rng.standard_normal(size), -_NORMAL_REACH, _NORMAL_REACH)
                return mean + deviation * deviations

            return Distribution(draw, mean - reach, mean + reach)
        case "choice", [_, *_]:
            options = np.array(numbers)
            return Distribution(
                lambda rng, size: options[rng.integers(len(options), size=size)],
                min(numbers),
                max(numbers),
                all(number.is_integer() for number in numbers),
            )
    return None

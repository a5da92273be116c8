"""Distributions as plain configuration: ``{"uniform": [0.8, 1.2]}`` and the like."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
    """Return a name that is known.

    Raises:
        ValueError: If it is not; the text proposes the closest one.
    """
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
    """What a value is drawn from.

    Attributes:
        draw: Draws one value, or an array of them if the shape is given.
        low: The lowest value that it can draw.
        high: The highest.
        whole: Whether it draws whole numbers only.
        each: Whether every link or joint has a draw of its own.
    """

    draw: Callable[[np.random.Generator, int | None], float | NDArray[np.float64]]
    low: float
    high: float
    whole: bool = False
    each: bool = False


def read_distribution(where: str, value: object, nominal: float) -> Distribution:
    """Return the distribution that a configuration states.

    Args:
        where: Name of the entry, for the message.
        value: A number, or a mapping of one kind to its numbers, with ``each: true`` if wanted.
        nominal: Mean of a normal distribution that is given its deviation alone.

    Raises:
        ValueError: If the configuration is not in order.
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
    readers: dict[str, Callable[[list[float], float], Distribution | None]] = {
        "constant": _constant,
        "uniform": _uniform,
        "log_uniform": _log_uniform,
        "normal": _normal,
        "choice": _choice,
    }
    sequence = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    values: list[Any] = list(given) if sequence else [given]
    numbers = [read_number(f"{where}.{kind}", number) for number in values]
    found = readers[kind](numbers, nominal)
    if found is None:
        raise ValueError(f"{where}.{kind}={given!r} does not fit. Write {_FORMS[kind]}.")
    return Distribution(found.draw, found.low, found.high, found.whole, each)


def _constant(numbers: list[float], nominal: float) -> Distribution | None:
    del nominal
    if len(numbers) != 1:
        return None
    (value,) = numbers
    return Distribution(
        lambda rng, size: value if size is None else np.full(size, value),
        value,
        value,
        value.is_integer(),
    )


def _uniform(numbers: list[float], nominal: float) -> Distribution | None:
    del nominal
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        return None
    low, high = numbers
    return Distribution(lambda rng, size: rng.uniform(low, high, size), low, high)


def _log_uniform(numbers: list[float], nominal: float) -> Distribution | None:
    del nominal
    if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1]:
        return None
    low, high = np.log(numbers)
    return Distribution(
        lambda rng, size: np.exp(rng.uniform(low, high, size)), numbers[0], numbers[1]
    )


def _normal(numbers: list[float], nominal: float) -> Distribution | None:
    mean, deviation = numbers if len(numbers) == 2 else (nominal, numbers[0])
    if len(numbers) > 2 or deviation < 0:
        return None

    def draw(rng: np.random.Generator, size: int | None) -> float | NDArray[np.float64]:
        reach = np.clip(rng.standard_normal(size), -_NORMAL_REACH, _NORMAL_REACH)
        value: float | NDArray[np.float64] = mean + deviation * reach
        return value

    reach = _NORMAL_REACH * deviation
    return Distribution(draw, mean - reach, mean + reach)


def _choice(numbers: list[float], nominal: float) -> Distribution | None:
    del nominal
    if not numbers:
        return None
    options = np.array(numbers)
    return Distribution(
        lambda rng, size: options[rng.integers(len(options), size=size)],
        min(numbers),
        max(numbers),
        all(number.is_integer() for number in numbers),
    )

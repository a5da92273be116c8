"""The state of an environment as plain data: what refuses to give it, and how its parts are read.

The readers raise a ValueError that names the part, the rule and the mend, and change nothing.
"""

from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

ENV_KEYS = (
    "step_s",
    "robot",
    "task",
    "num_steps",
    "episode_terms",
    "np_random",
    "np_random_seed",
)
"""What the state of an environment consists of."""

_MEND = "Load what state_dict returned for an environment made with the same arguments."


class InexactStateError(RuntimeError):
    """The state of an environment cannot be given exactly; replay the episode's actions instead."""


def overridden_alone(kind: type, names: Collection[str], companion: str) -> str | None:
    """Return the first of some methods that a class overrides without overriding a companion.

    Args:
        kind: Class to look at.
        names: Names of the methods.
        companion: Name of the method that should be overridden with them.
    """
    owner = next(base for base in kind.__mro__ if companion in vars(base))
    changed = (name for name in names if getattr(kind, name) is not getattr(owner, name))
    return next(changed, None)


def read_entries(where: str, value: object, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a mapping that has exactly these keys.

    Args:
        where: Name of the part, for the message.
        value: What should be such a mapping.
        keys: Keys it must have.

    Raises:
        ValueError: If it is no mapping, lacks a key or has another one.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}={value!r} must be a mapping. {_MEND}")
    missing = [key for key in keys if key not in value]
    unknown = [key for key in value if key not in keys]
    if missing or unknown:
        raise ValueError(
            f"{where} lacks {missing} and has unknown {unknown}: its keys must be {list(keys)}. "
            f"{_MEND}"
        )
    return value


def read_same(where: str, value: object, own: object) -> None:
    """Check a part that tells whose state it is.

    Raises:
        ValueError: If the value differs from this environment's own.
    """
    if type(value) is not type(own) or value != own:
        raise ValueError(f"{where}={value!r} differs from this environment's {own!r}. {_MEND}")


def read_whole(where: str, value: object, at_least: int) -> int:
    """Return a whole number that is not too low.

    Raises:
        ValueError: If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(
            f"{where}={value!r} must be a whole number of at least {at_least}. {_MEND}"
        )
    return int(value)


def read_number(where: str, value: object) -> float:
    """Return a number.

    Raises:
        ValueError: If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{where}={value!r} must be a number. {_MEND}")
    return float(value)


def read_vector(where: str, value: object, count: int) -> NDArray[np.float64]:
    """Return a fresh array of finite numbers, shape (count,).

    Raises:
        ValueError: If it has another shape or type, or a value that is not finite.
    """
    try:
        given = np.asarray(value)
    except ValueError:  # Lists of unequal length.
        given = np.array(None)
    # Other types would be rounded on the way in, or parsed from text.
    if given.dtype != np.float64 or given.shape != (count,) or not np.isfinite(given).all():
        raise ValueError(
            f"{where}={value!r} must be finite float64 numbers of shape ({count},). {_MEND}"
        )
    return given.copy()


def read_bit_generator_state(where: str, value: object, own: np.random.Generator) -> dict[str, Any]:
    """Return a state that a generator will accept; the generator itself stays as it is.

    Raises:
        ValueError: If the state is of another kind of generator, or incomplete.
    """
    kind = type(own.bit_generator)
    trial = kind(0)
    try:
        trial.state = cast(Mapping[str, Any], value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where}={value!r} must be a state of {kind.__name__} ({error}). {_MEND}"
        ) from error
    return dict(trial.state)

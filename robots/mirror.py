"""The mirror image of a robot: its observations and actions with the sides swapped."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.sensors import Floats


class Reflection(NamedTuple):
    """Mirrors a row of numbers: entry i becomes ``signs[i]`` times the entry at ``places[i]``.

    Of a discrete choice, ``places`` are the choices that take the place of each, and signs are 1.
    """

    places: tuple[int, ...]
    signs: tuple[float, ...]

    def of(self, values: Floats) -> Floats:
        """Return the mirror image of values of shape (..., n)."""
        mirrored: Floats = values[..., list(self.places)] * np.array(self.signs)
        return mirrored


class Mirror(NamedTuple):
    """How observations and actions of an environment are mirrored; twice gives them back."""

    observation: Reflection
    action: Reflection


def flips(*signs: float) -> Reflection:
    """Return the reflection of numbers that stay in their places."""
    return Reflection(tuple(range(len(signs))), signs)


def joined(*parts: Reflection) -> Reflection:
    """Return the reflection of several rows of numbers as one."""
    starts = accumulate((len(part.places) for part in parts), initial=0)
    pairs = zip(starts, parts, strict=False)
    places = [start + place for start, part in pairs for place in part.places]
    return Reflection(tuple(places), tuple(sign for part in parts for sign in part.signs))


def of_choices(action: Reflection, choices: NDArray[np.float64]) -> Reflection:
    """Return which choice is the mirror image of each.

    Args:
        action: Reflection of an action.
        choices: The actions to choose among, shape (n_choices, n_actions).
    """
    gaps = abs(action.of(choices)[:, None] - choices).sum(axis=-1)
    return Reflection(tuple(gaps.argmin(axis=1).tolist()), (1.0,) * len(choices))


def of_legs(front: Sequence[float], right: Sequence[float]) -> Reflection:
    """Return the reflection of three joints a leg, of which the first swings it to the side.

    Args:
        front: 1 for a front leg, -1 for a rear one.
        right: 1 for a right leg, -1 for a left one.
    """
    legs = list(zip(front, right, strict=True))
    others = [legs.index((ahead, -side)) for ahead, side in legs]
    places = tuple(3 * leg + joint for leg in others for joint in range(3))
    return Reflection(places, (-1.0, 1.0, 1.0) * len(legs))

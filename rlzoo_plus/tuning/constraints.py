"""What a study's trials must keep to: `steps_per_s >= 1000`, and how much a trial breaks it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.suggest import unknown_name
from rlzoo_plus.tuning.figures import FIGURES

_FORM = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraint:
    """A bound on a figure.

    Attributes:
        figure: The figure's name.
        is_lower: True for `>=`, False for `<=`.
        bound: The bound, in the figure's unit.
        key: Its name in the storage; in the order of the settings when sorted.
    """

    figure: str
    is_lower: bool
    bound: float
    key: str

    def violation(self, figures: Mapping[str, float]) -> float:
        """Return how much it is broken, in the figure's unit; zero or less: it is kept."""
        value = figures.get(self.figure, math.nan)
        if not math.isfinite(value):
            # What was not measured was not kept; samplers cannot use infinities.
            return max(abs(self.bound), 1.0)
        return self.bound - value if self.is_lower else value - self.bound


def parse_constraints(texts: Sequence[str]) -> list[Constraint]:
    """Read constraints.

    Raises:
        ConfigError: A text is no constraint, or its figure does not exist.
    """
    constraints = []
    for place, text in enumerate(texts):
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"hpo.constraints: {text!r} is no constraint. Write a figure, >= or <=, and a "
                'number, for example "steps_per_s >= 1000".'
            )
        figure, sign, number = match.groups()
        if figure not in FIGURES:
            raise ConfigError(f"hpo.constraints: {unknown_name('figure', figure, FIGURES)}")
        key = f"{place:02d} {figure} {sign} {number}"
        constraints.append(Constraint(figure, sign == ">=", float(number), key))
    return constraints

"""What a drawn value may be at most, where that depends on other values: `n_steps * n_envs`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.config.errors import ConfigError

_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Limit:
    """A product of keys and numbers, with divisions.

    Attributes:
        source: How it was written.
        factors: Each factor, and whether it is divided by.
    """

    source: str
    factors: tuple[tuple[str | float, bool], ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The configuration keys in it."""
        return tuple(factor for factor, _ in self.factors if isinstance(factor, str))

    def evaluate(self, look_up: Callable[[str], Any]) -> float | None:
        """Return the limit, None if a key in it holds no number (`auto`, null)."""
        product = 1.0
        for factor, is_divisor in self.factors:
            number = look_up(factor) if isinstance(factor, str) else factor
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                return None
            if is_divisor and number == 0:
                return None
            product = product / number if is_divisor else product * number
        return product


def parse_limit(key: str, source: Any) -> Limit:
    """Read `algo.hyperparams.n_steps * n_envs`, or a number.

    Args:
        key: The key whose limit it is, for the error's text.
        source: The text.

    Raises:
        ConfigError: It is no such product.
    """
    words = [word.strip() for word in re.split(r"([*/])", str(source))]
    factors: list[tuple[str | float, bool]] = []
    for operator, word in zip(["*", *words[1::2]], words[::2], strict=True):
        if _NUMBER.fullmatch(word):
            factors.append((float(word), operator == "/"))
        elif _KEY.fullmatch(word):
            factors.append((word, operator == "/"))
        else:
            raise ConfigError(
                f"hpo.space.{key}.at_most={source}: must be configuration keys and numbers with "
                "* and / between them, e.g. algo.hyperparams.n_steps * n_envs."
            )
    return Limit(str(source), tuple(factors))

"""One dimension of a search space: what is drawn, and the value that a draw stands for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.override_values import same_value, value_text

if TYPE_CHECKING:
    import optuna

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


Number = int | float
Primitive = None | bool | int | float | str
_PARTS = {"pi": "actor", "vf": "critic", "qf": "critic"}


class Kind(StrEnum):
    """What is drawn."""

    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"


@dataclass(frozen=True)
class Dimension:
    """A configuration key, and where its values are drawn from.

    A draw is a parameter: a primitive that a study can store. The key's value follows from it.

    Attributes:
        key: The configuration key, as on the command line.
        kind: What is drawn.
        source: The sweep it was made from, for messages.
        low: Smallest parameter; numbers only.
        high: Largest parameter, itself included.
        step: Distance of neighbouring parameters; None for all numbers of a float's range.
        log: Whether the parameter's logarithm is uniform.
        transform: `pow2`: the value is 2 to the parameter; `one_minus`: 1 less the parameter;
            `linear`: a schedule that falls from the parameter to 0.
        choices: The values of a choice.
        when: What other keys must be for this one to be drawn.
        at_most: What a value is cut down to.
    """

    key: str
    kind: Kind
    source: str
    low: Number = 0
    high: Number = 0
    step: Number | None = None
    log: bool = False
    transform: str | None = None
    choices: tuple[Any, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)
    at_most: Limit | None = None

    @property
    def name(self) -> str:
        """The parameter's name in a study: the key, and what the parameter is of it."""
        prefix = {"pow2": "log2", "one_minus": "one_minus"}.get(self.transform or "")
        return f"{prefix}({self.key})" if prefix else self.key

    @property
    def depends_on(self) -> set[str]:
        """The keys whose values must be known before this one is drawn."""
        return {*self.when, *(self.at_most.keys if self.at_most else ())}

    def suggest(self, trial: optuna.Trial | optuna.trial.FixedTrial) -> Any:
        """Draw a parameter; return the key's value."""
        if self.kind is Kind.CHOICE:
            return self.value(trial.suggest_categorical(self.name, list(self.params())))
        if self.kind is Kind.INT:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return self.value(trial.suggest_int(self.name, low, high, step=step, log=self.log))
        drawn = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return self.value(drawn)

    def value(self, param: Any) -> Any:
        """Return the key's value that a parameter stands for."""
        if self.kind is Kind.CHOICE:
            return self.choices[self._position(param)]
        if self.kind is Kind.FLOAT and self.step is not None:
            param = self._at(round((param - self.low) / self.step))
        if self.transform == "pow2":
            return 2 ** int(param)
        if self.transform == "one_minus":
            return 1 - param
        return f"lin_{param!r}" if self.transform == "linear" else param

    def count(self) -> int:
        """Return how many parameters there are.

        Raises:
            ConfigError: They cannot be counted.
        """
        if self.kind is Kind.CHOICE:
            return len(self.choices)
        if self.step is None:
            raise ConfigError(
                f"hpo.space.{self.key}={self.source}: a grid needs values that can be counted. "
                "Write range(start, stop, step) or choice(...)."
            )
        return round((self.high - self.low) / self.step) + 1

    def params(self) -> tuple[Primitive, ...]:
        """Return all parameters; errors as of `count`."""
        if self.kind is Kind.CHOICE:
            return tuple(_param(choice) for choice in self.choices)
        return tuple(self._at(index) for index in range(self.count()))

    def encode(self, value: Any) -> tuple[Primitive, bool]:
        """Return the parameter nearest to a value, and whether it stands for just that value.

        Raises:
            ValueError: None is near; the text says why.
        """
        if self.kind is Kind.CHOICE:
            wanted = canonical(self.key, value)
            for choice in self.choices:
                if same_value(canonical(self.key, choice), wanted):
                    return _param(choice), True
            raise ValueError("not among the choices")
        number, is_exact = self._number(value)
        if self.transform == "pow2":
            if number <= 0:
                raise ValueError("no power of 2")
            number = math.log2(number)
        elif self.transform == "one_minus":
            number = 1 - number
        param = self._nearest(number)
        return param, is_exact and math.isclose(param, number, rel_tol=1e-12, abs_tol=1e-12)

    def with_choice(self, value: Any) -> Dimension:
        """Return the choice with another value, unless it has it already."""
        try:
            self.encode(value)
        except ValueError:
            return replace(self, choices=(*self.choices, value))
        return self

    def limited(self, value: Number, limit: float) -> Number:
        """Return the largest value up to a limit, where the limit itself is none."""
        if value <= limit:
            return value
        if self.step is None:
            return limit
        position = math.log2(limit) if self.transform == "pow2" and limit > 0 else limit
        steps = math.floor((position - self.low) / self.step)
        if steps < 0:
            return math.floor(limit) if self.kind is Kind.INT else limit
        return self.value(self._at(steps))  # type: ignore[no-any-return]

    def _at(self, position: int) -> Number:
        assert self.step is not None
        if self.kind is Kind.INT:
            return int(self.low + position * self.step)
        # Counted in decimals: 0.1 + 2 * 0.1 is 0.30000000000000004 in binary.
        return float(Decimal(str(self.low)) + position * Decimal(str(self.step)))

    def _number(self, value: Any) -> tuple[float, bool]:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            return value, self.transform != "linear"
        if not isinstance(value, str):
            raise ValueError("no number")
        try:
            schedule = parse_schedule(value, self.key)
        except ConfigError:
            raise ValueError("no number") from None
        is_linear = self.transform == "linear" and schedule.kind == "lin" and schedule.end == 0
        return schedule.start, is_linear or schedule.start == schedule.end

    def _nearest(self, number: float) -> Number:
        clipped = min(max(number, self.low), self.high)
        if self.step is None:
            return float(clipped)
        return self._at(round((clipped - self.low) / self.step))

    def _position(self, param: Primitive) -> int:
        for position, other in enumerate(self.params()):
            if same_value(other, param):
                return position
        raise ConfigError(
            f"hpo.space.{self.key}={self.source}: {param!r} is not among the choices."
        )


def canonical(key: str, value: Any) -> Any:
    """Return a value in the one form that all its spellings have in common."""
    if key == "network.net_arch" and isinstance(value, Mapping):
        parts = {_PARTS.get(part, part): sizes for part, sizes in value.items()}
        sizes = list(parts.values())
        is_same = len(sizes) > 1 and all(same_value(sizes[0], other) for other in sizes)
        return sizes[0] if is_same else parts
    if key == "normalize":
        from rlzoo_plus.config.schema import NormalizeConfig

        if isinstance(value, bool) or value is None:
            return NormalizeConfig().model_dump() if value else None
        return NormalizeConfig.model_validate(value).model_dump()
    return value


def _param(choice: Any) -> Primitive:
    """Return a choice as a study can store it: lists and mappings as their text."""
    return value_text(choice) if isinstance(choice, (list, dict)) else choice

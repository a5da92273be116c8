"""A dimension of a search space: how it is written, what is drawn, and the value that gives."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, QuotedString, RangeSweep
from hydra.errors import HydraException

from rlzoo_plus.config.schedules import ScheduleSpec, is_function, parse_schedule
from rlzoo_plus.config.schema import NormalizeConfig
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.override_values import PARTS, parse_override, same_value, value_text
from rlzoo_plus.tuning.with_optuna import optuna

# The value: 2 to the parameter, 1 less the parameter, or a schedule from the parameter to 0.
TRANSFORMS = ("pow2", "one_minus", "linear")
LIMITS = ("at_least", "at_most")
_TAGS = ("log", *TRANSFORMS)
_EXAMPLE = "Write choice(a, b), interval(1e-5, 1e-2), range(8, 65, 8) or tag(log, interval(...))."
_MAX_EXPONENT = 30
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")
_PARTS_OF_NET = {"pi": "actor", "vf": "critic", "qf": "critic"}

Number = int | float
Primitive = None | bool | int | float | str
Trial = optuna.Trial | optuna.trial.FixedTrial


@dataclass(frozen=True)
class Limit:
    """A product of keys and numbers: each factor, and whether it is divided by."""

    source: str
    factors: tuple[tuple[str | float, bool], ...]

    @classmethod
    def parse(cls, key: str, part: str, source: Any) -> Limit:
        """Read `algo.hyperparams.n_steps * n_envs`, or a number, as `at_most` of a key."""
        words = [word.strip() for word in re.split(r"([*/])", str(source))]
        factors: list[tuple[str | float, bool]] = []
        for operator, word in zip(["*", *words[1::2]], words[::2], strict=True):
            is_number = _NUMBER.fullmatch(word)
            if not is_number and not _KEY.fullmatch(word):
                raise ConfigError(
                    f"hpo.space.{key}.{part}={source}: must be configuration keys and numbers "
                    "with * and / between them, e.g. algo.hyperparams.n_steps * n_envs."
                )
            factors.append((float(word) if is_number else word, operator == "/"))
        return cls(str(source), tuple(factors))

    @property
    def keys(self) -> tuple[str, ...]:
        """The configuration keys in it."""
        return tuple(factor for factor, _ in self.factors if isinstance(factor, str))

    def evaluate(self, look_up: Callable[[str], Any]) -> float | None:
        """Return the limit, None if a key in it holds no number (`auto`, null)."""
        product = 1.0
        for factor, is_divisor in self.factors:
            number = look_up(factor) if isinstance(factor, str) else factor
            if not is_number(number) or (is_divisor and number == 0):
                return None
            product = product / number if is_divisor else product * number
        return product


class Kind(StrEnum):
    """What is drawn."""

    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"


@dataclass(frozen=True)
class Dimension:
    """A configuration key, and the range that its values are drawn from.

    A draw is a parameter: a primitive that a study can store. The key's value follows from it.
    """

    key: str  # As on the command line
    kind: Kind
    source: str  # The sweep it was made from, for messages
    low: Number = 0  # Smallest parameter; numbers only
    high: Number = 0  # Largest parameter, itself included
    step: Number | None = None  # Distance of neighbouring parameters; None for all floats
    log: bool = False  # Whether the parameter's logarithm is uniform
    transform: str | None = None  # One of `TRANSFORMS`
    choices: tuple[Any, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)  # Values that other keys must have
    at_least: Limit | None = None  # The lower limit of a value
    at_most: Limit | None = None  # The upper limit of a value, which counts if both cannot

    @property
    def name(self) -> str:
        """The parameter's name in a study: the key, and what the parameter is of it."""
        prefix = {"pow2": "log2", "one_minus": "one_minus"}.get(self.transform or "")
        return f"{prefix}({self.key})" if prefix else self.key

    @property
    def depends_on(self) -> set[str]:
        """The keys whose values must be known before this one is drawn."""
        return {*self.when, *self.limiting}

    @property
    def limiting(self) -> set[str]:
        """The keys that its limits are made of."""
        return {key for limit in (self.at_least, self.at_most) if limit for key in limit.keys}

    def _between(self, least: float | None, most: float | None) -> Dimension:
        """Return a dimension of numbers without values beyond limits; one value always stays."""
        low, high = self.low, self.high
        if least is not None and (place := self._place(least)) > low:
            low = min(high, place if self.step is None else self._at(self._steps(place, math.ceil)))
        if most is not None and (place := self._place(most)) < high:
            high = max(self.low, place)
            if self.step is not None:
                high = self._at(max(0, self._steps(place, math.floor)))
        return replace(self, low=min(low, high), high=high)

    def _place(self, value: float) -> float:
        """Return the parameter of a value, as a fraction where none stands for just that value."""
        return math.log2(value) if self.transform == "pow2" and value > 0 else value

    def _steps(self, place: float, rounded: Callable[[float], int]) -> int:
        assert self.step is not None
        return rounded((place - self.low) / self.step)

    def suggest(self, trial: Trial, look_up: Callable[[str], Any]) -> Any:
        """Draw a parameter between the limits; return the key's value.

        The sampler draws from the range that is left, and so learns from the value that is used.
        What was stored before, or is queued, may be beyond the limits: it is cut.
        """
        least, most = (
            None if limit is None else limit.evaluate(look_up)
            for limit in (self.at_least, self.at_most)
        )
        if least is None and most is None:
            return self._suggest(trial)
        # A fixed trial refuses what is out of range.
        is_open = not isinstance(trial, optuna.trial.FixedTrial)
        with warnings.catch_warnings():
            # The first trial is what train uses; the sampler is given the nearest values.
            warnings.filterwarnings("ignore", message="Fixed parameter")
            value = (self._between(least, most) if is_open else self)._suggest(trial)
        if least is not None and value < least:
            value = self.value(self._between(least, None).low)
        return value if most is None or value <= most else self._cut(most)

    def _cut(self, limit: float) -> Number:
        """Return the largest value up to a limit, where the limit itself is none."""
        if self.step is None or self._place(limit) < self.low:
            return math.floor(limit) if self.kind is Kind.INT else limit
        return self.value(self._between(None, limit).high)  # type: ignore[no-any-return]

    def _suggest(self, trial: Trial) -> Any:
        if self.kind is Kind.CHOICE:
            # A value that is there twice is drawn twice as often.
            return self.value(trial.suggest_categorical(self.name, list(map(_param, self.choices))))
        if self.kind is Kind.INT:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return self.value(trial.suggest_int(self.name, low, high, step=step, log=self.log))
        drawn = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return self.value(drawn)

    def value(self, param: Any) -> Any:
        """Return the key's value that a parameter stands for."""
        if self.kind is Kind.CHOICE:
            for choice in self.choices:
                if same_value(_param(choice), param):
                    return choice
            raise ConfigError(
                f"hpo.space.{self.key}={self.source}: {param!r} is not among the choices."
            )
        if self.kind is Kind.FLOAT and self.step is not None:
            param = self._at(round((param - self.low) / self.step))
        if self.transform == "pow2":
            return 2 ** int(param)
        if self.transform == "one_minus":
            return 1 - param
        return f"lin_{param!r}" if self.transform == "linear" else param

    def count(self) -> int:
        """Return how many parameters there are; a ConfigError says that they are not countable."""
        if self.kind is Kind.CHOICE:
            return len(self.params())
        if self.step is None:
            raise ConfigError(
                f"hpo.space.{self.key}={self.source}: a grid needs values that can be counted. "
                "Write range(start, stop, step) or choice(...)."
            )
        return round((self.high - self.low) / self.step) + 1

    def params(self) -> tuple[Primitive, ...]:
        """Return all parameters, each once; errors as of `count`."""
        if self.kind is Kind.CHOICE:
            return tuple(dict.fromkeys(map(_param, self.choices)))
        return tuple(map(self._at, range(self.count())))

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
        param: Number = float(min(max(number, self.low), self.high))
        if self.step is not None:
            param = self._at(round((param - self.low) / self.step))
        return param, is_exact and math.isclose(param, number, rel_tol=1e-12, abs_tol=1e-12)

    def with_choice(self, value: Any) -> Dimension:
        """Return the choice with another value, unless it has it already."""
        try:
            self.encode(value)
        except ValueError:
            return replace(self, choices=(*self.choices, value))
        return self

    def _at(self, position: int) -> Number:
        assert self.step is not None
        if self.kind is Kind.INT:
            return int(self.low + position * self.step)
        # Counted in decimals: 0.1 + 2 * 0.1 is 0.30000000000000004 in binary.
        return float(Decimal(str(self.low)) + position * Decimal(str(self.step)))

    def _number(self, value: Any) -> tuple[float, bool]:
        if is_number(value) and math.isfinite(value):
            return value, self.transform != "linear"
        # A function is not called for its numbers: its code may not be trusted.
        if not isinstance(value, str) or is_function(value):
            raise ValueError("no number")
        try:
            schedule = parse_schedule(value, self.key)
        except ConfigError:
            raise ValueError("no number") from None
        assert isinstance(schedule, ScheduleSpec)
        is_linear = self.transform == "linear" and schedule.kind == "lin" and schedule.end == 0
        return schedule.start, is_linear or schedule.start == schedule.end


def canonical(key: str, value: Any) -> Any:
    """Return a value in the one form that all its spellings have in common."""
    if key == "network.net_arch" and isinstance(value, Mapping):
        parts = {_PARTS_OF_NET.get(part, part): sizes for part, sizes in value.items()}
        sizes = list(parts.values())
        is_same = len(sizes) > 1 and all(same_value(sizes[0], other) for other in sizes)
        return sizes[0] if is_same else parts
    if key == "normalize":
        if isinstance(value, bool) or value is None:
            return NormalizeConfig().model_dump() if value else None
        return NormalizeConfig.model_validate(value).model_dump()
    return value


def _param(choice: Any) -> Primitive:
    """Return a choice as a study can store it: lists and mappings as their text."""
    return value_text(choice) if isinstance(choice, (list, dict)) else choice


def is_number(value: Any) -> bool:
    """Return whether a value is a number; a truth value is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse_entry(key: str, entry: Any) -> Dimension:
    """Read an entry of `hpo.space`: a sweep, or a mapping of `space`, `when` and limits."""
    if not isinstance(entry, Mapping):
        return parse_sweep(key, entry)
    for part in entry:
        if part not in PARTS:
            raise ConfigError(unknown_name(f"part of hpo.space.{key}", str(part), PARTS))
    if "space" not in entry:
        raise ConfigError(f"hpo.space.{key}={dict(entry)}: has no space. Add space: choice(...).")
    when = entry.get("when") or {}
    if not isinstance(when, Mapping):
        raise ConfigError(
            f"hpo.space.{key}.when={when}: must be a mapping of keys to the values that they must "
            "have, e.g. {algo.hyperparams.use_sde: true}."
        )
    given = [part for part in LIMITS if entry.get(part) is not None]
    limits = {part: Limit.parse(key, part, entry[part]) for part in given}
    return parse_sweep(key, entry["space"], when=when, **limits)


def parse_sweep(
    key: str, text: Any, *, when: Mapping[str, Any] | None = None, **limits: Any
) -> Dimension:
    """Read a sweep in Hydra's syntax; `limits` are those of `LIMITS`, errors as `parse_entry`'s."""
    where = f"hpo.space.{key}={text}"
    try:
        # What YAML has read as a number or a list is one value, whatever its text is to Hydra.
        override = parse_override(f"{key}={text}") if isinstance(text, str) else None
    except HydraException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if "NoneType is incompatible" in reason:
            reason = "choice(...) takes no null. Write the values without it: null,0.1,0.2"
        raise ConfigError(f"{where}: {reason}. {_EXAMPLE}") from None
    if override is None or not override.is_sweep_override():
        raise ConfigError(f"{where}: one value is no space. {_EXAMPLE}")
    sweep: Any = override.value()
    if getattr(sweep, "shuffle", False):
        raise ConfigError(f"{where}: the order has no meaning here. Leave shuffle out.")
    common: dict[str, Any] = {"key": key, "source": text, "when": dict(when or {})}
    if isinstance(sweep, ChoiceSweep):
        for part in limits:
            raise ConfigError(f"hpo.space.{key}.{part} is for numbers, not for {text}.")
        return Dimension(kind=Kind.CHOICE, choices=_choices(sweep, where), **common)
    if isinstance(sweep, RangeSweep):
        bounds = _range_bounds(sweep, where)
    elif isinstance(sweep, IntervalSweep):
        bounds = _interval_bounds(sweep, where)
    else:
        raise ConfigError(f"{where}: glob is not possible here. Write the names: choice(a, b).")
    tags = _check_tags(sweep.tags, bounds, where)
    if limits and tags["transform"] in ("one_minus", "linear"):
        part = next(iter(limits))
        raise ConfigError(f"hpo.space.{key}.{part} does not go with {tags['transform']}.")
    return Dimension(**common, **bounds, **tags, **limits)


def _choices(sweep: ChoiceSweep, where: str) -> tuple[Any, ...]:
    if sweep.tags:
        raise ConfigError(f"{where}: tags are for interval and range. {_EXAMPLE}")
    values: list[Any] = []
    for value in map(_unquoted, sweep.list):
        try:
            text = value_text(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}.") from None
        # A study compares its parameters as Python does, for which true is 1.
        equal = (o for o in values if _param(value) == _param(o) and not same_value(value, o))
        for other in equal:
            raise ConfigError(
                f"{where}: {text} equals another value, {value_text(other)}. Leave one out."
            )
        values.append(value)
    return tuple(values)


def _unquoted(value: Any) -> Any:
    # Not through Hydra's own text of it, in which '1e-3' has become 1e-3.
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_unquoted(item) for item in value]
    if isinstance(value, dict):
        return {_unquoted(key): _unquoted(item) for key, item in value.items()}
    return value


def _interval_bounds(sweep: IntervalSweep, where: str) -> dict[str, Any]:
    low, high = float(sweep.start or 0), float(sweep.end or 0)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"{where}: an interval needs two finite ends, the smaller one first.")
    if isinstance(sweep.start, int) and isinstance(sweep.end, int):
        return {"kind": Kind.INT, "low": sweep.start, "high": sweep.end, "step": 1}
    return {"kind": Kind.FLOAT, "low": low, "high": high}


def _range_bounds(sweep: RangeSweep, where: str) -> dict[str, Any]:
    """Return the bounds of a range; as in Hydra and in Python, `stop` is not part of it."""
    numbers = (sweep.start, sweep.stop, sweep.step)
    is_whole = all(isinstance(number, int) for number in numbers)
    as_number, kind = (int, Kind.INT) if is_whole else (float, Kind.FLOAT)
    if not all(math.isfinite(number or 0) for number in numbers) or sweep.step == 0:
        raise ConfigError(f"{where}: a range needs finite numbers, and a step other than 0.")
    start, stop, step = (Decimal(str(number)) for number in numbers)
    count = math.ceil((stop - start) / step)
    if count < 1:
        raise ConfigError(f"{where}: is empty. The first number is its begin, the second its end.")
    low, high = sorted((start, start + (count - 1) * step))
    numbers_by_name = {"low": low, "high": high, "step": abs(step)}
    return {"kind": kind, **{name: as_number(each) for name, each in numbers_by_name.items()}}


def _check_tags(tags: set[str], bounds: Mapping[str, Any], where: str) -> dict[str, Any]:
    for tag in sorted(tags):
        if tag not in _TAGS:
            raise ConfigError(f"{where}: {unknown_name('tag', tag, _TAGS)}")
    transforms = [tag for tag in TRANSFORMS if tag in tags]
    transform = transforms[0] if transforms else None
    is_log, is_int = "log" in tags, bounds["kind"] is Kind.INT
    is_exponent = is_int and 0 <= bounds["low"] <= bounds["high"] <= _MAX_EXPONENT
    mistakes = {
        f"{' and '.join(transforms)} do not go together.": len(transforms) > 1,
        "log needs numbers above 0.": is_log and bounds["low"] <= 0,
        "log does not go with a step. Use interval(...).": is_log
        and bounds.get("step") not in ((None, 1) if is_int else (None,)),
        "pow2 draws exponents, and is logarithmic without log.": is_log and transform == "pow2",
        f"pow2 needs whole exponents from 0 to {_MAX_EXPONENT}, e.g. tag(pow2, range(5, 12)) for "
        "32 to 2048.": transform == "pow2" and not is_exponent,
        f"{transform} needs fractions, e.g. interval(1e-4, 0.1).": is_int
        and transform in ("one_minus", "linear"),
    }
    for mistake, is_made in mistakes.items():
        if is_made:
            raise ConfigError(f"{where}: {mistake}")
    return {"log": is_log, "transform": transform}

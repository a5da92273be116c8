"""From Hydra's sweep syntax to a dimension of a search space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.dimensions import Dimension, Kind, parse_limit
from rlzoo_plus.tuning.override_values import parse_override, value_text

if TYPE_CHECKING:
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

TRANSFORMS = ("pow2", "one_minus", "linear")
_TAGS = ("log", *TRANSFORMS)
_PARTS = ("space", "when", "at_most")
_EXAMPLE = "Write choice(a, b), interval(1e-5, 1e-2), range(8, 65, 8) or tag(log, interval(...))."
_MAX_EXPONENT = 30


def parse_entry(key: str, entry: Any) -> Dimension:
    """Read an entry of `hpo.space`: a sweep, or a mapping of `space`, `when` and `at_most`.

    Raises:
        ConfigError: It names the key, what it was given, and the rule.
    """
    if not isinstance(entry, Mapping):
        return parse_sweep(key, entry)
    for part in entry:
        if part not in _PARTS:
            raise ConfigError(unknown_name(f"part of hpo.space.{key}", str(part), _PARTS))
    if "space" not in entry:
        raise ConfigError(f"hpo.space.{key}={dict(entry)}: has no space. Add space: choice(...).")
    when = entry.get("when") or {}
    if not isinstance(when, Mapping):
        raise ConfigError(
            f"hpo.space.{key}.when={when}: must be a mapping of keys to the values that they must "
            "have, e.g. {algo.hyperparams.use_sde: true}."
        )
    return parse_sweep(key, entry["space"], when=when, at_most=entry.get("at_most"))


def parse_sweep(
    key: str, text: Any, *, when: Mapping[str, Any] | None = None, at_most: Any = None
) -> Dimension:
    """Read a sweep in Hydra's syntax; arguments and errors as of `parse_entry`."""
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep

    override = _parse(key, text)
    sweep: Any = override._value if override.is_sweep_override() else None
    where = f"hpo.space.{key}={text}"
    if getattr(sweep, "shuffle", False):
        raise ConfigError(f"{where}: the order has no meaning here. Leave shuffle out.")
    common: dict[str, Any] = {"key": key, "source": str(text), "when": dict(when or {})}
    if isinstance(sweep, ChoiceSweep):
        if at_most is not None:
            raise ConfigError(f"hpo.space.{key}.at_most is for numbers, not for {text}.")
        return Dimension(kind=Kind.CHOICE, choices=_choices(sweep, where), **common)
    if isinstance(sweep, RangeSweep):
        bounds = _range_bounds(sweep, where)
    elif isinstance(sweep, IntervalSweep):
        bounds = _interval_bounds(sweep, where)
    elif override.is_sweep_override():
        raise ConfigError(f"{where}: glob is not possible here. Write the names: choice(a, b).")
    else:
        raise ConfigError(f"{where}: one value is no space. {_EXAMPLE}")
    tags = _check_tags(sweep.tags, bounds, where)
    limit = None if at_most is None else parse_limit(key, at_most)
    if limit is not None and tags["transform"] in ("one_minus", "linear"):
        raise ConfigError(f"hpo.space.{key}.at_most does not go with {tags['transform']}.")
    return Dimension(**common, **bounds, **tags, at_most=limit)


def _parse(key: str, text: Any) -> Override:
    from hydra.errors import HydraException

    # What YAML has read as a number or a list is one value, whatever Hydra makes of its text.
    if not isinstance(text, str):
        raise ConfigError(f"hpo.space.{key}={text}: one value is no space. {_EXAMPLE}")
    try:
        return parse_override(f"{key}={text}")
    except HydraException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if "NoneType is incompatible" in reason:
            reason = "choice(...) takes no null. Write the values without it: null,0.1,0.2"
        raise ConfigError(f"hpo.space.{key}={text}: {reason}. {_EXAMPLE}") from None


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
        if any(_collide(value, other) for other in values):
            raise ConfigError(f"{where}: {text} is there twice, or cannot be told from another.")
        values.append(value)
    return tuple(values)


def _unquoted(value: Any) -> Any:
    # Not through Hydra's own text of it, in which '1e-3' has become 1e-3.
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [_unquoted(item) for item in value]
    if isinstance(value, dict):
        return {_unquoted(key): _unquoted(item) for key, item in value.items()}
    return value


def _collide(first: Any, second: Any) -> bool:
    def param(value: Any) -> Any:
        return value_text(value) if isinstance(value, (list, dict)) else value

    return bool(param(first) == param(second))


def _interval_bounds(sweep: IntervalSweep, where: str) -> dict[str, Any]:
    low, high = sweep.start, sweep.end
    assert low is not None
    assert high is not None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"{where}: an interval needs two finite ends, the smaller one first.")
    if isinstance(low, int) and isinstance(high, int):
        return {"kind": Kind.INT, "low": low, "high": high, "step": 1}
    return {"kind": Kind.FLOAT, "low": float(low), "high": float(high)}


def _range_bounds(sweep: RangeSweep, where: str) -> dict[str, Any]:
    """Return the bounds of a range; as in Hydra and in Python, `stop` is not part of it."""
    numbers = (sweep.start, sweep.stop, sweep.step)
    is_whole = all(isinstance(number, int) for number in numbers)
    if not all(math.isfinite(number or 0) for number in numbers) or sweep.step == 0:
        raise ConfigError(f"{where}: a range needs finite numbers, and a step other than 0.")
    start, stop, step = (Decimal(str(number)) for number in numbers)
    count = math.ceil((stop - start) / step)
    if count < 1:
        raise ConfigError(f"{where}: is empty. The first number is its begin, the second its end.")
    low, high = sorted((start, start + (count - 1) * step))
    as_number = int if is_whole else float
    return {
        "kind": Kind.INT if is_whole else Kind.FLOAT,
        "low": as_number(low),
        "high": as_number(high),
        "step": as_number(abs(step)),
    }


def _check_tags(tags: set[str], bounds: Mapping[str, Any], where: str) -> dict[str, Any]:
    for tag in sorted(tags):
        if tag not in _TAGS:
            raise ConfigError(f"{where}: {unknown_name('tag', tag, _TAGS)}")
    transforms = [tag for tag in TRANSFORMS if tag in tags]
    if len(transforms) > 1:
        raise ConfigError(f"{where}: {' and '.join(transforms)} do not go together.")
    is_log = "log" in tags
    transform = transforms[0] if transforms else None
    if is_log and bounds["low"] <= 0:
        raise ConfigError(f"{where}: log needs numbers above 0.")
    if is_log and bounds.get("step") not in (None, 1):
        raise ConfigError(f"{where}: log does not go with a step. Use interval(...).")
    if is_log and bounds.get("step") == 1 and bounds["kind"] is Kind.FLOAT:
        raise ConfigError(f"{where}: log does not go with a step. Use interval(...).")
    if transform == "pow2":
        if is_log:
            raise ConfigError(f"{where}: pow2 draws exponents, and is logarithmic without log.")
        is_exponent = 0 <= bounds["low"] <= bounds["high"] <= _MAX_EXPONENT
        if bounds["kind"] is not Kind.INT or not is_exponent:
            raise ConfigError(
                f"{where}: pow2 needs whole exponents from 0 to {_MAX_EXPONENT}, "
                "e.g. tag(pow2, range(5, 12)) for 32 to 2048."
            )
    elif transform is not None and bounds["kind"] is not Kind.FLOAT:
        raise ConfigError(f"{where}: {transform} needs fractions, e.g. interval(1e-4, 0.1).")
    return {"log": is_log, "transform": transform}

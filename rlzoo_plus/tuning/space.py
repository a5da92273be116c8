"""A study's search space: which configuration keys are drawn, and what a trial makes of them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.override_parser.types import Override

from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.registry import import_user_module
from rlzoo_plus.tuning.dimensions import (
    LIMITS,
    Dimension,
    Kind,
    Trial,
    canonical,
    parse_entry,
    parse_sweep,
)
from rlzoo_plus.tuning.override_values import (
    Values,
    ancestors,
    are_related,
    by_key,
    parse_override,
    same_value,
    value_text,
)
from rlzoo_plus.tuning.with_optuna import optuna

# To choose one of their files is not to fix the values in it; a network's file is all values.
_CHOICES = tuple(group for group in GROUPS if group != "network")
_NOT_SEARCHED = ("hpo", "infra", "hydra", "seed", "run_dir", "sweep", "store", "resume", "restart")
_MAX_GRID = 100_000


@dataclass(frozen=True)
class Space:
    """The search space of a study.

    Its dimensions are in the order of drawing: none comes before one that it depends on. `custom`
    is the user's own function, `module.function`, which is called before.
    """

    dimensions: tuple[Dimension, ...]
    custom: str | None = None

    @classmethod
    def parse(cls, entries: Mapping[str, Any], custom: str | None = None) -> Space:
        """Read `hpo.space`, of which entries that are null are left out, and `hpo.custom`."""
        plain = by_key(entries)
        for key in plain:
            _check_key(key)
        dimensions = [parse_entry(key, entry) for key, entry in plain.items() if entry is not None]
        if custom is not None:
            load_custom(custom)
        return cls(_in_order(dimensions), custom)

    def with_overrides(self, overrides: Sequence[str | Override]) -> Space:
        """Return the space that a command line leaves.

        A sweep adds a dimension, or replaces the one of its key; `when` and limits stay. A
        value removes the dimension of its key, and those above and below it.
        """
        dimensions = {dimension.key: dimension for dimension in self.dimensions}
        for override in overrides:
            parsed = parse_override(override) if isinstance(override, str) else override
            key, is_sweep = parsed.key_or_group, parsed.is_sweep_override()
            if key.startswith(("hydra.", "hydra/")) or (key in _CHOICES and not is_sweep):
                continue
            dimensions = {
                other: dimension
                for other, dimension in dimensions.items()
                if (other == key and is_sweep) or not are_related(other, key)
            }
            if not is_sweep:
                continue
            _check_key(key)
            dimension, before = parse_sweep(key, parsed.get_value_string()), dimensions.get(key)
            if before is not None:
                is_cut = dimension.kind is not Kind.CHOICE and dimension.transform in (None, "pow2")
                limits: dict[str, Any] = {part: getattr(before, part) for part in LIMITS}
                dimension = replace(dimension, when=before.when, **(limits if is_cut else {}))
            dimensions[key] = dimension
        return replace(self, dimensions=_in_order(list(dimensions.values())))

    def with_present(self, values: Mapping[str, Any]) -> Space:
        """Return the space with the values of a configuration, by key, among the choices."""
        present = Values(values)
        with_them = (
            each.with_choice(present.get(each.key))
            if each.kind is Kind.CHOICE and present.has(each.key)
            else each
            for each in self.dimensions
        )
        return replace(self, dimensions=tuple(with_them))

    def settled(self, values: Mapping[str, Any]) -> Space:
        """Return the space of a configuration, without what is never drawn, or always met.

        A custom function may give any key a value, so that with one everything stays.
        """
        present = Values(values)
        needed = {key for each in self.dimensions for key in each.limiting}
        drawn = {dimension.key for dimension in self.dimensions}
        kept = []
        for dimension in self.dimensions:
            for key in dimension.depends_on:
                self._look_up(dimension, present, key)
            open_: dict[str, Any] = {}
            closed: dict[str, Any] = {}
            for key, wanted in dimension.when.items():
                is_open = self.custom or any(are_related(key, other) for other in drawn)
                (open_ if is_open else closed)[key] = wanted
            if self._is_drawn(replace(dimension, when=closed), present):
                kept.append(replace(dimension, when=open_))
            else:
                drawn.discard(dimension.key)
                # A limit that names its key must still find it.
                kept += [dimension] if dimension.key in needed else []
        return replace(self, dimensions=tuple(kept))

    def entries(self) -> dict[str, Any]:
        """Return the space as `hpo.space` would write it."""
        found: dict[str, Any] = {}
        for dimension in self.dimensions:
            more: dict[str, Any] = {"when": dict(dimension.when)} if dimension.when else {}
            for part in LIMITS:
                if limit := getattr(dimension, part):
                    more[part] = limit.source
            found[dimension.key] = {"space": dimension.source, **more} if more else dimension.source
        return found

    def draw(self, trial: Trial, fixed: Mapping[str, Any]) -> list[str]:
        """Draw the values of a trial.

        Args:
            trial: Suggests the parameters.
            fixed: The configuration that the values are put on top of, nested or by dotted
                key; `when` and limits look there for what is not drawn.

        Returns:
            Overrides, `key=value` as on the command line.
        """
        values = Values(fixed)
        if self.custom is not None:
            values.drawn.update(draw_custom(self.custom, trial))
        for dimension in self.dimensions:
            if dimension.key not in values.drawn and self._is_drawn(dimension, values):
                look_up = functools.partial(self._look_up, dimension, values)
                values.drawn[dimension.key] = dimension.suggest(trial, look_up)
        return [f"{key}={value_text(value)}" for key, value in values.drawn.items()]

    def encode(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Find the parameters that stand for a configuration's present values.

        Values outside their range become the nearest one inside; what no parameter stands for is
        left out, so that the sampler draws it.

        Returns:
            The parameters by name, as `study.enqueue_trial` takes them, and a line for each
            value that could not be kept.
        """
        present = Values(values)
        params: dict[str, Any] = {}
        notes = []
        for dimension in self.dimensions:
            if not self._is_drawn(dimension, present):
                continue
            value = present.get(dimension.key)
            shown = f"{dimension.key}={'null' if value is None else value}"
            try:
                param, is_exact = dimension.encode(value)
            except ValueError as error:
                notes.append(f"{shown} is drawn: {error} ({dimension.source})")
                continue
            params[dimension.name] = param
            if not is_exact:
                nearest = dimension.value(param)
                notes.append(f"{shown} becomes {nearest}, the nearest in {dimension.source}")
        return params, notes

    def grid(self) -> dict[str, list[Any]]:
        """Return all values of each parameter, by name, as Optuna's GridSampler takes them."""
        if self.custom is not None:
            raise ConfigError(f"hpo.custom={self.custom}: a grid cannot be made of a function.")
        for dimension in self.dimensions:
            if dimension.when:
                raise ConfigError(
                    f"hpo.space.{dimension.key}: a grid cannot have a key that is drawn only when "
                    f"{', '.join(dimension.when)} has a value. Fix it on the command line."
                )
        sizes = [dimension.count() for dimension in self.dimensions]
        if math.prod(sizes) > _MAX_GRID:
            raise ConfigError(
                f"hpo.sampler=grid: {math.prod(sizes)} trials are more than {_MAX_GRID}. "
                "Fix some keys on the command line, or use another sampler."
            )
        return {dimension.name: list(dimension.params()) for dimension in self.dimensions}

    def _is_drawn(self, dimension: Dimension, values: Values) -> bool:
        found = {
            key: canonical(key, self._look_up(dimension, values, key)) for key in dimension.when
        }
        return all(same_value(found[k], canonical(k, v)) for k, v in dimension.when.items())

    def _look_up(self, dimension: Dimension, values: Values, key: str) -> Any:
        keys = [other.key for other in self.dimensions]
        if not values.has(key) and key not in keys:
            raise ConfigError(
                f"hpo.space.{dimension.key}: {unknown_name('key', key, [*values.keys(), *keys])}"
            )
        return values.get(key)


def _check_key(key: str) -> None:
    first = key.split(".")[0].split("/")[0].split("@")[0]
    if first in _NOT_SEARCHED:
        hint = " Use hpo.seeds for more seeds of each trial." if first == "seed" else ""
        raise ConfigError(f"hpo.space.{key}: a study does not search for {first}.{hint}")


def _in_order(dimensions: list[Dimension]) -> tuple[Dimension, ...]:
    """Sort so that each comes after those it depends on; otherwise the order stays."""
    ordered: list[Dimension] = []
    waiting = list(dimensions)
    while waiting:
        keys = {dimension.key for dimension in waiting}
        # A mapping is drawn before a part of it.
        needs = [
            dimension.depends_on.union(*map(ancestors, (dimension.key, *dimension.depends_on)))
            for dimension in waiting
        ]
        pairs = zip(waiting, needs, strict=True)
        ready = next((d for d, needed in pairs if not needed & (keys - {d.key})), None)
        if ready is None or ready.key in ready.depends_on:
            names = ", ".join(sorted(keys))
            raise ConfigError(f"hpo.space: {names} wait for one another. Remove a when or a limit.")
        ordered.append(ready)
        waiting.remove(ready)
    return tuple(ordered)


_KEY = re.compile(r"[A-Za-z_][\w/@]*(\.\w+)*")
_SHAPE = "It must return a mapping of keys to values, e.g. {'algo.hyperparams.gamma': 0.98}"


def load_custom(path: str) -> Callable[[Any], Any]:
    """Return the function that `hpo.custom` names, or raise a ConfigError."""
    module, _, name = path.rpartition(".")
    if not module:
        raise ConfigError(f"hpo.custom={path}: must be module.function, e.g. my_module.my_space.")
    loaded = import_user_module(f"hpo.custom={path}", module)
    function = getattr(loaded, name, None)
    if not callable(function):
        raise ConfigError(f"hpo.custom={path}: {module} has no function {name}.")
    return function  # type: ignore[no-any-return]


def draw_custom(path: str, trial: Trial) -> dict[str, Any]:
    """Return what the user's function draws, by key."""
    try:
        drawn = load_custom(path)(trial)
    except (ConfigError, optuna.TrialPruned):
        raise
    except Exception as error:
        raise ConfigError(f"hpo.custom={path}: {type(error).__name__}: {error}") from error
    if not isinstance(drawn, Mapping):
        raise ConfigError(f"hpo.custom={path} returned {type(drawn).__name__}. {_SHAPE}.")
    for key, value in drawn.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ConfigError(f"hpo.custom={path} returned the key {key!r}. {_SHAPE}.")
        try:
            value_text(value)
        except ValueError as error:
            raise ConfigError(f"hpo.custom={path} returned {key}: {error}.") from None
    return dict(drawn)

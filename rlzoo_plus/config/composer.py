"""Composes the jobs of a sweep: each choice of files once by Hydra, plain values on top of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from rlzoo_plus.artifacts.secrets import is_secret_name, is_secret_variable
from rlzoo_plus.artifacts.untrusted import levels

# Raised where a configuration cannot be composed: a group set to null is a plain ValueError.
ERRORS = (HydraException, OmegaConfBaseException, ValueError)
# Choices of files that are kept; Hydra takes a fifth of a second for each.
_MOST_KEPT = 1000
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# Interpolations that mean the same without Hydra.
_REFERENCE = re.compile(r"\$\{(?!hydra\b)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\}", re.ASCII)
_VARIABLE = re.compile(r"\$\{oc\.env:[A-Za-z_]\w*\}", re.ASCII)
_MISSING = "???"
# As Hydra reads it; not more digits than Python reads quickly.
_WHOLE_NUMBER = re.compile(r"(?P<key>[^=]+)=(?P<number>0|-?[1-9][0-9]{0,17})", re.ASCII)

Key = tuple[str, ...]
Data = dict[str, Any]


@dataclass(frozen=True)
class Composed:
    """A composed configuration."""

    values: Data  # Plain data, interpolations resolved
    choices: Data  # The file chosen in each configuration group
    overrides: tuple[str, ...]  # The overrides it was composed from
    places: Data  # Hydra's own keys for directories
    hydra_overrides: tuple[str, ...] = ()  # Overrides of Hydra itself

    @classmethod
    def of(cls, cfg: Any) -> Composed:
        """Return what Hydra has composed for a job.

        Raises:
            OmegaConfBaseException: An interpolation cannot be resolved.
        """
        if "hydra" in cfg:
            # Interpolations may refer to what Hydra knows of the job.
            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
        hydra = HydraConfig.get()
        # As typed: an interpolation in one of them is resolved in the values only.
        given: Any = OmegaConf.to_container(hydra.overrides, resolve=False)
        choices, places = dict(hydra.runtime.choices), _places(hydra)
        return cls(plain_values(cfg), choices, tuple(given["task"]), places, tuple(given["hydra"]))


class Batch(Protocol):
    """What the launcher of a sweep calls, besides the job itself for each configuration."""

    def refuse(self, error: Exception, overrides: Sequence[str]) -> None:
        """Record why the configuration of a job with these overrides cannot be composed."""

    def run(self) -> list[float | None]:
        """Run the jobs collected since the last call; return a value for each."""

    def begin(self, n_jobs: int) -> None:
        """Set up composing for the number of jobs that will be composed until `run` is called."""

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Search for hyperparameters: compose a configuration, run it, and repeat.

        Args:
            arguments: The overrides of the command line, sweeps among them.
            compose: Returns the configuration of a list of overrides.
        """


class Composer:
    """Composes the jobs of one command: the same result as Hydra's, and much faster.

    Whatever may differ is composed by Hydra: deletions, mappings, resolvers, new keys.
    """

    def __init__(self, loader: Any, master: Any) -> None:
        """Take Hydra's loader, and the configuration of the command itself."""
        self._loader = loader
        self._master = master
        self._hydra_overrides = tuple(master.hydra.overrides.hydra)
        self._files_of = lru_cache(_MOST_KEPT)(self._compose_files)
        self._read: dict[str, _Value | None] = {}
        self._groups: dict[str, bool] = {}
        self._errors: dict[tuple[tuple[str, ...], Key], Exception] = {}

    def compose(self, number: int, overrides: Sequence[str]) -> Composed:
        """Return the configuration of a job.

        Raises:
            HydraException, OmegaConfBaseException, ValueError: It cannot be composed.
        """
        read = [self._value_of(override) for override in overrides]
        files = tuple(o for o, value in zip(overrides, read, strict=True) if value is None)
        try:
            base = self._files_of(files)
            if isinstance(base, _UnsureError):
                raise base
            values = base.with_values([value for value in read if value is not None])
        except _UnsureError as unsure:
            return self._by_hydra(number, overrides, files, unsure)
        return Composed(values, base.choices, tuple(overrides), base.places, self._hydra_overrides)

    def _by_hydra(
        self, number: int, overrides: Sequence[str], files: tuple[str, ...], unsure: _UnsureError
    ) -> Composed:
        reason = None if unsure.fails_at is None else (files, unsure.fails_at)
        if reason in self._errors:
            raise self._errors[reason]
        try:
            cfg = self._load(overrides)
            with open_dict(cfg):
                cfg.hydra.job.id = str(number)
                cfg.hydra.job.num = number
            return Composed.of(cfg)
        except ERRORS as error:
            if reason is not None:
                self._errors[reason] = error
            raise

    def _load(self, overrides: Sequence[str]) -> Any:
        return self._loader.load_sweep_config(self._master, list(overrides))

    def _compose_files(self, overrides: tuple[str, ...]) -> _Files | _UnsureError:
        """Return what a choice of files gives without any plain value; an error if that varies."""
        # The keys that overrides for Hydra change besides choosing a file.
        changed = set()
        for override in map(_parse, overrides):
            chooses_file = self._is_group(override) and not isinstance(override.value(), dict)
            if override.package is None and not chooses_file:
                changed.add(tuple(re.split(r"[.\[\]]+", override.key_or_group)))
        try:
            cfg = self._load(overrides)
        except ERRORS:
            return _UnsureError(())
        choices, places = dict(cfg.hydra.runtime.choices), _places(cfg.hydra)
        with open_dict(cfg):
            del cfg["hydra"]
        raw: Any = OmegaConf.to_container(cfg, resolve=False)
        texts = [text for level in levels(raw) for text in level if isinstance(text, str)]
        rest = [_VARIABLE.sub("", _REFERENCE.sub("", text)) for text in texts]
        if any("${" in text for text in rest):
            return _UnsureError()
        return _Files(raw, choices, places, changed, any("${" in text for text in texts))

    def _value_of(self, override: str) -> _Value | None:
        """Return an override as a plain value, None if it is for Hydra."""
        # Seeds are many: all whole numbers of a key are read as one.
        match = _WHOLE_NUMBER.fullmatch(override)
        key = f"{match['key']}=0" if match else override
        if key not in self._read:
            self._read[key] = self._read_value(override)
        value = self._read[key]
        if match is None or value is None:
            return value
        return _Value(value.key, int(match["number"]), value.prefix)

    def _read_value(self, text: str) -> _Value | None:
        override = _parse(text)
        is_plain = override.package is None and _PLAIN_KEY.fullmatch(override.key_or_group)
        if not is_plain or override.is_delete() or override.is_sweep_override():
            return None
        key, value = tuple(override.key_or_group.split(".")), override.value()
        if key[0] == "hydra" or not _is_plain(value) or self._is_group(override):
            return None
        kinds = {OverrideType.CHANGE: "", OverrideType.ADD: "+", OverrideType.FORCE_ADD: "++"}
        return _Value(key, value, kinds[override.type])

    def _is_group(self, override: Any) -> bool:
        name = override.key_or_group
        if name not in self._groups:
            found = self._loader.get_group_options(
                name, None, self._master.hydra.job.config_name, list(self._hydra_overrides)
            )
            self._groups[name] = bool(found)
        return self._groups[name]


def compose_batch(
    composer: Composer,
    jobs: Sequence[Sequence[str]],
    take: Callable[[Composed], None],
    batch: Batch,
    first: int = 0,
) -> None:
    """Compose the jobs of a batch; `take` gets each, the batch why one cannot be composed."""
    batch.begin(len(jobs))
    for number, overrides in enumerate(jobs, first):
        try:
            composed = composer.compose(number, overrides)
        except ERRORS as error:
            batch.refuse(error, overrides)
        else:
            take(composed)


class _UnsureError(Exception):
    """Hydra itself must compose a job.

    Attributes:
        fails_at: If that fails, all jobs with the same files fail that have this key; None if
            it depends on the value.
    """

    def __init__(self, fails_at: Key | None = None) -> None:
        super().__init__()
        self.fails_at = fails_at


@dataclass(frozen=True)
class _Value:
    """A plain value of the command line; `prefix` is empty, `+` or `++`."""

    key: Key
    value: Any
    prefix: str


@dataclass(frozen=True)
class _Files:
    """The configuration of a choice of files."""

    raw: Data  # Plain data with interpolations
    choices: Data  # The file chosen in each group
    places: Data  # Hydra's own keys for directories
    changed: set[Key]  # Keys that overrides besides plain values have changed already
    refers: bool  # Whether it has interpolations

    def with_values(self, values: Sequence[_Value]) -> Data:
        """Return it with plain values, interpolations resolved.

        Raises:
            _UnsureError: The result of Hydra might differ.
            OmegaConfBaseException: An interpolation cannot be resolved.
        """
        keys = [value.key for value in values]
        if any(_overlap(key, other) for key in keys for other in self.changed):
            raise _UnsureError
        if len(keys) > 1 and any(a != b and _overlap(a, b) for a in keys for b in keys):
            raise _UnsureError
        # One may refer to a list, which Hydra merges.
        if self.refers and any(isinstance(value.value, list) for value in values):
            raise _UnsureError
        data = _with(self.raw, values)
        return plain_values(OmegaConf.create(data)) if self.refers else data


def _with(data: Data, values: Sequence[_Value]) -> Data:
    """Return a copy with values set as OmegaConf does.

    Raises:
        _UnsureError: Hydra would do more.
    """
    changed: Data = _copied(data)
    for value in values:
        *parents, last = value.key
        place: Any = changed
        for name in parents:
            place = place.get(name)
            if not isinstance(place, dict):
                raise _UnsureError
        if not value.prefix and last not in place:
            raise _UnsureError(value.key)
        before = place.get(last)
        is_new = before is None or before == _MISSING
        if isinstance(before, dict) or (value.prefix == "+" and not is_new):
            raise _UnsureError
        place[last] = _copied(value.value)
    return changed


def plain_values(cfg: Any) -> dict[str, Any]:
    """Return a composed configuration as plain data, with references to secrets kept.

    Raises:
        OmegaConfBaseException: An interpolation fails, e.g. because a variable is not set.
    """
    with _references_kept():
        values: Any = OmegaConf.to_container(cfg, resolve=True)
    return {str(key): value for key, value in values.items()}


@contextmanager
def _references_kept() -> Iterator[None]:
    """Let OmegaConf return a reference where a secret is interpolated."""
    missing = object()

    def resolve(name: str, default: Any = missing, *, _node_: Any) -> Any:
        keys = str(_node_._get_full_key(None)).split(".")
        is_kept = is_secret_variable(name) or any(map(is_secret_name, keys))
        if is_kept and name in os.environ:
            return f"${{oc.env:{name}}}"
        return oc.env(name) if default is missing else oc.env(name, default)

    OmegaConf.register_new_resolver("oc.env", resolve, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _places(hydra: Any) -> Data:
    keys = (("run", "dir"), ("sweep", "dir"), ("job", "chdir"))
    plain: Data = {part: OmegaConf.to_container(hydra[part], resolve=False) for part, _ in keys}
    return {f"hydra.{part}.{key}": plain[part][key] for part, key in keys}


def _parse(text: str) -> Any:
    (override,) = _parser().parse_overrides([text])
    return override


@cache
def _parser() -> Any:
    return OverridesParser.create()


def _is_plain(value: Any) -> bool:
    """Tell whether a value is set as it is, with no other meaning to OmegaConf."""
    if isinstance(value, str):
        return "${" not in value and value != _MISSING
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float))


def _copied(value: Any) -> Any:
    """Return a copy of plain data, several times as fast as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _overlap(one: Key, other: Key) -> bool:
    """Tell whether two keys are equal, or one contains the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]

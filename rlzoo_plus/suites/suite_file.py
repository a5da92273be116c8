"""Suite files: the cells of a benchmark as YAML, with published scores where there are some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from rlzoo_plus.artifacts.untrusted import parse_yaml, printable
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options
from rlzoo_plus.config.section import Section
from rlzoo_plus.errors import ConfigError, unknown_name

_NAME = re.compile(r"(?P<algo>\w+):(?P<env>[\w./-]+)(@(?P<label>[\w-]+))?", re.ASCII)
# An evaluation has reached a published mean if so much of it, on the way up from 0, is missing.
_MISSING = 0.1


class _CellFile(Section):
    mean: float | None = None
    std: float | None = Field(None, ge=0.0)
    episodes: int | None = Field(None, gt=0)
    overrides: tuple[str, ...] = ()
    named_only: bool = False
    note: str = ""


class _SuiteFile(Section):
    about: str
    source: str = ""
    licence: str = ""
    policy: Literal["final", "best"] = "final"
    episodes: int = Field(100, gt=0)
    overrides: tuple[str, ...] = ()
    variants: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    cells: dict[str, _CellFile | None] = Field(min_length=1)


@dataclass(frozen=True)
class Cell:
    """An algorithm on an environment: one row of a benchmark."""

    name: str  # `algo:env`, or `algo:env@label`
    algo: str
    env: str
    overrides: tuple[str, ...] = ()  # What its runs have besides the tuned values
    mean: float | None = None  # The published mean return
    std: float | None = None  # Its standard deviation over episodes
    episodes: int = 100  # Held-out episodes of each run
    named_only: bool = False  # Whether it is trained only if it is named
    note: str = ""  # What a reader of the table should know

    @property
    def words(self) -> list[str]:
        """The overrides of its runs."""
        return [f"algo={self.algo}", f"env={self.env}", *self.overrides]

    @property
    def target(self) -> float | None:
        """The return from which on an evaluation has reached the published mean: 90 % of it."""
        return None if self.mean is None else self.mean - _MISSING * abs(self.mean)

    def verdict(self, score: float) -> str:
        """Return whether a score is inside, above or below mean +- deviation."""
        if self.mean is None or self.std is None:
            return "-"
        if abs(score - self.mean) <= self.std:
            return "inside"
        return "above" if score > self.mean else "below"


@dataclass(frozen=True)
class Suite:
    """The cells of a benchmark."""

    name: str  # The file's name without its ending
    about: str  # What it is for, and how long it takes
    source: str  # Where the scores are from
    licence: str  # Their licence
    policy: Literal["final", "best"]  # The policy of a run that is scored
    cells: tuple[Cell, ...]  # In the order of the file

    def chosen(self, names: Sequence[str]) -> list[Cell]:
        """Return the cells with these names; without names, those that need not be named."""
        known = {cell.name: cell for cell in self.cells}
        for name in names:
            if name not in known:
                raise ConfigError(unknown_name(f"cell of the suite {self.name}", name, known))
        if names:
            return [known[name] for name in dict.fromkeys(names)]
        return [cell for cell in self.cells if not cell.named_only]


def shipped_suites() -> dict[str, Path]:
    """Return the files of the suites of conf/suites by name."""
    return {path.stem: path for path in sorted((conf_dir() / "suites").glob("*.yaml"))}


def load_suite(name: str, overrides: Sequence[str] = ()) -> Suite:
    """Read a shipped suite by its name, or one by the path of its file.

    Args:
        name: E.g. `bullet` or `my.yaml`.
        overrides: A command line that may add folders of configurations.

    Raises:
        ConfigError: There is none, or something in it is wrong; one line.
    """
    shipped = shipped_suites()
    path = shipped.get(name, Path(name).expanduser())
    if name not in shipped and path.suffix not in (".yaml", ".yml"):
        hint = "Your own is a file: --suite FILE.yaml, written like those of conf/suites."
        raise ConfigError(f"{unknown_name('suite', name, shipped)} {hint}")
    try:
        data = parse_yaml(path.read_bytes())
        file = _SuiteFile.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{printable(path)}: {_first(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{printable(path)}: {error}. A suite is plain YAML.") from None
    except OSError as error:
        raise ConfigError(f"{printable(path)}: {error.strerror}. Name a file.") from None
    if not re.fullmatch(r"[\w-]+", path.stem, re.ASCII):
        raise ConfigError(
            f"{printable(path)}: the name of the file names the sweep. Use letters, digits, "
            "hyphens and underscores."
        )
    envs = group_options("env", config_dirs(overrides))
    try:
        cells = _cells(file, envs)
    except ConfigError as error:
        raise ConfigError(f"{printable(path)}: {error}") from None
    about = (path.stem, file.about, file.source, file.licence, file.policy)
    return Suite(*about, cells=cells)


def _cells(file: _SuiteFile, envs: Sequence[str]) -> tuple[Cell, ...]:
    _check_overrides("overrides", file.overrides)
    cells: dict[str, Cell] = {}
    for name, given in file.cells.items():
        about, match = given or _CellFile(), _NAME.fullmatch(name)
        if match is None:
            raise ConfigError(f"cells.{name}: must be ALGO:ENV or ALGO:ENV@LABEL.")
        algo, env, label = match["algo"], match["env"], match["label"]
        if algo not in ALGORITHMS:
            raise ConfigError(f"cells.{name}: {unknown_name('algorithm', algo, ALGORITHMS)}")
        if env not in envs:
            raise ConfigError(f"cells.{name}: {unknown_name('environment', env, envs)}")
        if (about.mean is None) != (about.std is None):
            raise ConfigError(f"cells.{name}: mean and std go together. Give both or neither.")
        _check_overrides(f"cells.{name}.overrides", about.overrides)
        # The same algorithm and environment with other values has the same score to reach.
        plain = cells.get(f"{algo}:{env}") if label else None
        mean, std = about.mean, about.std
        episodes = about.episodes or file.episodes
        if plain is not None and mean is None:
            mean, std, episodes = plain.mean, plain.std, about.episodes or plain.episodes
        for variant, words in file.variants.items() or [("", ())]:
            if label and variant:
                raise ConfigError(f"cells.{name}: a suite with variants has no cells with @.")
            _check_overrides(f"variants.{variant}", words)
            own = f"{name}@{variant}" if variant else name
            overrides = (*file.overrides, *words, *about.overrides)
            score = (mean, std, episodes)
            cells[own] = Cell(own, algo, env, overrides, *score, about.named_only, about.note)
    return tuple(cells.values())


def _check_overrides(where: str, words: Sequence[str]) -> None:
    for word in words:
        if "=" not in word or word.startswith("-"):
            raise ConfigError(f"{where}: {word!r} is no override such as n_envs=4.")


def _first(error: ValidationError) -> str:
    """Return the first mistake in a file, with its value and the rule."""
    item: Any = error.errors()[0]
    path = [str(part) for part in item["loc"]]
    if item["type"] == "extra_forbidden":
        known = (_CellFile if path[0] == "cells" else _SuiteFile).model_fields
        where = f"{'.'.join(path[:-1])}: " if path[:-1] else ""
        return where + unknown_name("key", path[-1], known)
    if item["type"] == "missing":
        return f"{'.'.join(path)} is missing. Add it."
    value = printable(repr(item["input"]), 80)
    where = ".".join(path) or "the file"
    return f"{where} is {value}: {item['msg'][0].lower()}{item['msg'][1:]}."

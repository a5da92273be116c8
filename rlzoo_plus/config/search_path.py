"""Where configuration files are searched: the user's directories first, then the shipped conf/."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_DIR_OPTIONS = ("--config-dir", "-cd", "--config-path", "-cp")
_ITEM = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<plain>[^\[\],\s]+)")
_first: ContextVar[tuple[Path, ...]] = ContextVar("first_dirs", default=())


def own_dirs(arguments: Sequence[str]) -> list[Path]:
    """Return the directories that a command line adds to the shipped conf/, in their order."""
    typed = list(arguments)
    if {"-sc", "--shell_completion"} & set(arguments):
        # A shell completes this command line.
        line = os.environ.get("COMP_LINE", "")
        try:
            typed += shlex.split(line)
        except ValueError:
            typed += line.split()
    found: list[Path | None] = []
    for position, argument in enumerate(typed):
        option, _, value = argument.partition("=")
        if option in _DIR_OPTIONS:
            value = value or "".join(typed[position + 1 : position + 2])
            found += [Path(value)] if value else []
        elif option.lstrip("+") == "hydra.searchpath":
            items = (match[match.lastgroup or 0] for match in _ITEM.finditer(value))
            found += map(_directory, items)
    return list(dict.fromkeys(path for path in found if path is not None and path.is_dir()))


def _directory(item: str) -> Path | None:
    """Return the directory of an entry of hydra.searchpath, None if it is no directory."""
    scheme, separator, rest = item.partition("://")
    if not separator:
        return Path(item)
    if scheme != "pkg":
        return Path(rest) if scheme == "file" else None
    try:
        spec = importlib.util.find_spec(rest)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def first_dirs() -> tuple[Path, ...]:
    """Return the directories that Hydra searches before the shipped conf/ now."""
    return _first.get()


@contextmanager
def searched_first(dirs: Sequence[Path]) -> Iterator[None]:
    """Let Hydra search directories before the shipped conf/ while it starts.

    Hydra itself appends those of `--config-dir` and `hydra.searchpath`, where a shipped file of
    the same name has precedence.
    """
    token = _first.set(tuple(path.absolute() for path in dirs))
    try:
        yield
    finally:
        _first.reset(token)


def shadowing_notes(choices: Mapping[str, Any], dirs: Sequence[Path]) -> list[str]:
    """Return notes about files of the user that replace shipped ones.

    Args:
        choices: The chosen file of each group.
        dirs: The directories that are searched, the shipped conf/ last.
    """
    *own, shipped = dirs
    names = ["config"]
    for group, name in choices.items():
        folder = group.partition("@")[0]
        names.append(f"{folder}/{name}")
        # Base files of the group, which cannot be chosen.
        names += sorted(f"{folder}/{path.stem}" for path in (shipped / folder).glob("_*.yaml"))
    notes = []
    for name in dict.fromkeys(names):
        place = next((root for root in dirs if (root / f"{name}.yaml").is_file()), shipped)
        replaced = shipped / f"{name}.yaml"
        if place in own and replaced.is_file() and not replaced.samefile(place / f"{name}.yaml"):
            notes.append(f"{place / name}.yaml is used in place of the shipped conf/{name}.yaml")
    return notes

"""Where configuration files are searched: the user's own first; and what is wrong with one."""

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

import yaml

from rlzoo_plus.errors import ConfigError

_DIR_OPTIONS = ("--config-dir", "-cd", "--config-path", "-cp")
_ITEM = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<plain>[^\[\],\s]+)")
_first: ContextVar[tuple[Path, ...]] = ContextVar("first_dirs", default=())


def conf_dir() -> Path:
    """Return the shipped conf/; a ConfigError if the installation lacks it."""
    return shipped_folder("conf", "config.yaml")


def shipped_folder(name: str, file: str) -> Path:
    """Return a shipped folder that has a file: beside the package in a checkout, else inside it.

    Raises:
        ConfigError: The installation lacks it.
    """
    here = Path(__file__).resolve().parents[1]
    for folder in (here / name, here.parent / name):
        if (folder / file).is_file():
            return folder
    raise ConfigError(f"{name}/{file} is missing from the installation. Reinstall rlzoo-plus.")


def config_dirs(arguments: Sequence[str]) -> list[Path]:
    """Return the directories that are searched: the user's own, then conf/."""
    return [*own_dirs(arguments), conf_dir()]


def group_options(group: str, dirs: Sequence[Path]) -> list[str]:
    """Return the names that `group=<name>` may take, nested ones as `folder/name`."""
    folders = [root / group for root in dirs]
    files = ((f, p) for f in folders for p in f.rglob("[!_]*.yaml") if p.is_file())
    return sorted({p.relative_to(folder).with_suffix("").as_posix() for folder, p in files})


def missing_tuned(choices: Mapping[str, Any], dirs: Sequence[Path]) -> str | None:
    """Return the name of a chosen `tuned` file that does not exist."""
    name = choices.get("tuned")
    if not name or any((root / "tuned" / f"{name}.yaml").is_file() for root in dirs):
        return None
    return str(name)


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


def read_mapping(path: Path, with_text: str = "") -> dict[Any, Any]:
    """Return the content of a configuration file, with no interpolation resolved.

    Args:
        path: The file.
        with_text: A file without this text is not parsed, and the result is empty.

    Raises:
        ConfigError: It is no configuration; the text has the line and the fix.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}. A configuration is a file.") from None
    if with_text.encode(errors="replace") not in data:
        return {}
    if (problem := _encoding_problem(data)) is not None:
        raise ConfigError(f"{path}{problem}")
    try:
        content = yaml.safe_load(data.decode())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{yaml_problem(error)}") from None
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply. Write it flatter.") from None
    if content is not None and not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a single value"
        raise ConfigError(
            f"{path}, line 1: the file holds {kind}. Write keys with values, e.g. `seed: 3`."
        )
    return content or {}


def _encoding_problem(data: bytes) -> str | None:
    """Return the line of a character that is not UTF-8 or not allowed in YAML, and the fix."""
    # Hydra would not find `# @package` behind it.
    if data.startswith(b"\xef\xbb\xbf"):
        return ", line 1: it begins with a byte order mark. Save it as UTF-8 without one."
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f", line {line}: byte 0x{data[error.start]:02x} is not UTF-8. Save it as UTF-8."
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if found is None:
        return None
    line = text.count("\n", 0, found.start()) + 1
    return f", line {line}: character {found[0]!r} is not allowed in YAML. Remove it."


def yaml_problem(error: yaml.YAMLError) -> str:
    """Return the line of a mistake in YAML, what it is and the fix."""
    problem, context = (str(getattr(error, name, "") or "") for name in ("problem", "context"))
    mark: Any = getattr(error, "problem_mark", None)
    if "flow" in context or "quoted scalar" in context:
        # Where the bracket or the quote was opened, not where the file ends.
        mark = getattr(error, "context_mark", None) or mark
    number = 1 if mark is None else mark.line + 1
    return (
        f", line {number}: {problem or str(error).splitlines()[0]}. Write plain YAML: "
        "`key: value`, each key once, indented with spaces, brackets and quotes closed, and "
        "special characters in quotes."
    )

"""Imports what a user names, modules and classes of their own; what goes wrong there is theirs."""

from __future__ import annotations

import importlib
import re
import traceback
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from rlzoo_plus.config.errors import ConfigError

T = TypeVar("T")

_OURS = Path(__file__).resolve().parents[1]
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def import_user_module(key: str, name: str, install: str | None = None) -> ModuleType:
    """Import a module that a configuration names.

    Args:
        key: The key that names it, for the error.
        name: The module's dotted name.
        install: How to install it, None if it can only be the user's own.

    Raises:
        ConfigError: There is none, or its import fails; the text says where.
    """
    if not _MODULE.fullmatch(name):
        raise ConfigError(
            f"{key}: {name!r} is not the name of a module. Write it as after import, e.g. "
            "my_package.my_module."
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(_describe(key, name, error)) from error
        how = install or _how_to_find(name)
        raise ConfigError(f"{key}: there is no module {error.name}. {how}.") from error
    # The module is the user's, whatever it raises; a script may end the process.
    except (Exception, SystemExit) as error:
        raise ConfigError(_describe(key, name, error)) from error


def import_user_class(key: str, path: str, base: type[T]) -> type[T]:
    """Import a class by its dotted path; nothing is called before it is known to be one.

    Args:
        key: The key that names it, for the error.
        path: Module and class.
        base: What it must inherit from.

    Raises:
        ConfigError: It is missing, or something else.
    """
    module, _, name = path.rpartition(".")
    where = f"{key}: {path}"
    if not module:
        raise ConfigError(f"{where} is not a dotted path. Write my_module.MyClass.")
    found = getattr(import_user_module(where, module), name, None)
    if not isinstance(found, type) or not issubclass(found, base):
        what = "is not in its module" if found is None else f"is not a {base.__name__}"
        package = base.__module__.partition(".")[0]
        raise ConfigError(
            f"{where} {what}. Name a class that inherits from {package}'s {base.__name__}."
        )
    return found


def where_raised(error: BaseException) -> str:
    """Return what was raised and where, in one line: `KeyError: 'x' (my_env.py, line 3)`."""
    lines = str(error).splitlines()
    kind = type(error).__name__
    text = f"{kind}: {lines[0]}" if lines else kind
    if isinstance(error, SyntaxError):
        # Its text has the place.
        return text
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not Path(frame.filename).is_relative_to(_OURS)
    ]
    return (
        f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text
    )


def _how_to_find(name: str) -> str:
    top, _, rest = name.partition(".")
    if top == "robots":
        return (
            f"`robots` is a package of rlzoo_plus: give yours another name, e.g. my_robots.{rest}"
        )
    return "Install it; if it is a file of yours, name its folder in PYTHONPATH"


def _describe(key: str, name: str, error: BaseException) -> str:
    return f"{key}: {name} cannot be imported: {where_raised(error)}."

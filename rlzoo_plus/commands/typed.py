"""Commands as they can be typed here: in the form in which this program was started.

The texts of the package say `rlzoo-plus VERB`. What is printed says `python -m rlzoo_plus VERB`,
`python train.py` or the path of the program, if that is what was typed.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_NAME = "rlzoo-plus"
_COMMAND = re.compile(
    rf"(?<![\w./'\[-])(?P<program>{_NAME}|python -m rlzoo_plus) (?P<verb>VERB\b|[a-z][a-z0-9-]*)"
)


class CommandParser(ArgumentParser):
    """A parser whose help and errors name the program as it was typed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(as_typed(message), file)


def as_typed(text: str) -> str:
    """Return a text whose commands can be pasted here."""

    def typed(match: re.Match[str]) -> str:
        from rlzoo_plus.commands.dispatch import VERBS

        verb = match["verb"]
        if verb not in VERBS and verb != "VERB":
            return match[0]
        # Where a module of the current folder must be found, only -m will do.
        return _program(verb) if match["program"] == _NAME else _as_module(verb)

    return _COMMAND.sub(typed, text)


@functools.cache
def console_class() -> type[Console]:
    """Return the class of the console; Rich is imported when something is printed with it."""
    from rich.console import Console

    class TypedConsole(Console):
        """Prints texts with their commands as typed, and leaves it to the terminal to wrap them.

        A command that is wrapped by whoever prints it cannot be pasted. Where nobody reads any
        more, as behind `| head`, the rest is thrown away: a training goes on.
        """

        def print(self, *objects: Any, **options: Any) -> None:
            if objects and all(isinstance(item, str) for item in objects):
                objects = tuple(as_typed(item) for item in objects)
                options.setdefault("soft_wrap", True)
            super().print(*objects, **options)

        def on_broken_pipe(self) -> None:
            throw_away_output()

    return TypedConsole


def throw_away_output() -> None:
    """Let what is printed from now on go nowhere, since its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str) -> None:
    """Print a text for people, with its commands as they can be typed."""
    print(as_typed(text))


@functools.cache
def _program(verb: str) -> str:
    started = Path(sys.argv[0])
    if started.name == "__main__.py" and started.parent.name == "rlzoo_plus":
        return _as_module(verb)
    if started.name == _NAME:
        words = [_path_of(started), verb]
    elif started.name == "train.py" and started.is_file():
        words = [_interpreter(), str(started)] if verb == "train" else [*_installed(), verb]
    else:
        words = [_NAME, verb]
    return shlex.join(words)


def _as_module(verb: str) -> str:
    return shlex.join([_interpreter(), "-m", "rlzoo_plus", verb])


def _interpreter() -> str:
    """Return this Python as it must be typed here: `python`, as it was typed, or its path."""
    typed = sys.orig_argv[0] if sys.orig_argv else ""
    if typed and "/" not in typed:
        return typed
    return "python" if shutil.which("python") == sys.executable else _below_here(sys.executable)


def _installed() -> list[str]:
    """Return what starts the other verbs beside a train.py."""
    beside = Path(sys.executable).parent / _NAME
    if shutil.which(_NAME) is None and not beside.is_file():
        return [_interpreter(), "-m", "rlzoo_plus"]
    return [_path_of(beside)]


def _path_of(program: Path) -> str:
    """Return a program as it must be typed here: with its folder if that is not on the path."""
    found = shutil.which(program.name)
    if found is not None and (not program.is_file() or Path(found).samefile(program)):
        return program.name
    return _below_here(os.path.abspath(program))


def _below_here(path: str) -> str:
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path

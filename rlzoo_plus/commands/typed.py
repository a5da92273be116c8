"""The terminal of the commands: parsers and a console that print commands as they can be typed.

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

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.verbs import VERBS
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

_NAME = "rlzoo-plus"
_COMMAND = re.compile(rf"(?<![\w./'\[-]){_NAME} (?P<verb>VERB\b|[a-z][a-z0-9-]*)")


class CommandParser(ArgumentParser):
    """A parser whose help ends in an example, and names the program as it was typed."""

    example = ""

    def format_help(self) -> str:
        """Return the help; the example is one line, so that it can be pasted."""
        text = super().format_help()
        return f"{text}\nExample: {self.example}\n" if self.example else text

    def parse_known_args(self, *args: Any, **options: Any) -> Any:
        """Parse, and refuse the address of a store where a path of this machine is meant."""
        found, rest = super().parse_known_args(*args, **options)
        for value in vars(found).values():
            # A path has lost one of the slashes.
            if isinstance(value, Path) and value.parts[:1] in (("s3:",), ("hf:",)):
                verb = "pull" if value.parts[0] == "s3:" else "hub pull"
                raise ConfigError(
                    f"{printable(value).replace(':/', '://', 1)}: this is to be a path of this "
                    f"machine. `rlzoo-plus {verb}` brings a run here."
                )
        return found, rest

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(as_typed(message), file)


def command_parser(verb: str, description: str, example: str, **options: Any) -> CommandParser:
    """Return the parser of a verb, with an example of its arguments, for its help."""
    parser = CommandParser(prog=f"{_NAME} {verb}", description=description, **options)
    parser.example = f"{_NAME} {verb} {example}"
    return parser


def as_typed(text: str) -> str:
    """Return a text whose commands can be pasted here."""

    def typed(match: re.Match[str]) -> str:
        verb = match["verb"]
        return _program(verb) if verb in VERBS or verb == "VERB" else match[0]

    return _COMMAND.sub(typed, text)


def make_console(*, stderr: bool = False) -> Console:
    """Return the console of the commands, for tables, bars and log lines.

    It prints commands as typed and lets the terminal wrap them: a command with line breaks cannot
    be pasted. In a file, lines are never wrapped. Where nobody reads any more, as behind `| head`,
    further output is dropped: a training goes on.
    """
    # Rich is imported when something is printed with it.
    from rich.console import Console

    class TypedConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            if objects and all(isinstance(item, str) for item in objects):
                objects = tuple(as_typed(item) for item in objects)
                options.setdefault("soft_wrap", True)
            super().print(*objects, **options)

        def on_broken_pipe(self) -> None:
            drop_output()

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    whole_lines: dict[str, Any] = {} if is_terminal else {"width": 200, "soft_wrap": True}
    return TypedConsole(highlight=False, stderr=stderr, **whole_lines)


def drop_output() -> None:
    """Send what is printed from now on nowhere, since its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str) -> None:
    """Print a text for people, with its commands as they can be typed; in a pipe, at once, too."""
    print(as_typed(text), flush=True)


@functools.cache
def _program(verb: str) -> str:
    started, beside = Path(sys.argv[0]), Path(sys.executable).parent / _NAME
    module = [_interpreter(), "-m", "rlzoo_plus", verb]
    if started.name == "__main__.py" and started.parent.name == "rlzoo_plus":
        words = module
    elif started.name == _NAME:
        words = [program_path(started), verb]
    elif started.name != "train.py" or not started.is_file():
        words = [_NAME, verb]
    elif verb == "train":
        words = [_interpreter(), str(started)]
    else:
        is_installed = shutil.which(_NAME) is not None or beside.is_file()
        words = [program_path(beside), verb] if is_installed else module
    return shlex.join(words)


def _interpreter() -> str:
    """Return this Python as it must be typed here: `python`, as it was typed, or its path."""
    if sys.orig_argv and sys.orig_argv[0] and "/" not in sys.orig_argv[0]:
        return sys.orig_argv[0]
    return "python" if shutil.which("python") == sys.executable else _below_here(sys.executable)


def program_path(program: Path) -> str:
    """Return a program as it must be typed here: with its folder if that is not on the path."""
    found = shutil.which(program.name)
    if found is not None and (not program.is_file() or Path(found).samefile(program)):
        return program.name
    return _below_here(os.path.abspath(program))


def _below_here(path: str) -> str:
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path

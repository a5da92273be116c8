"""The arguments that commands on a run share, and their types."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable

from rlzoo_plus.commands.typed import CommandParser


def run_parser(verb: str, description: str, example: str) -> ArgumentParser:
    """Return a parser with the arguments that all commands on a run share."""
    parser = CommandParser(
        prog=f"rlzoo-plus {verb}", description=f"{description} Example: {example}"
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, e.g. outputs/<env>/<algo>/...")
    parser.add_argument(
        "--which", default="best", help="best (default), final, or the step of a checkpoint"
    )
    parser.add_argument(
        "--seed", type=_not_negative, default=0, help="another set of held-out episodes"
    )
    parser.add_argument("--stochastic", action="store_true", help="act with exploration")
    parser.add_argument(
        "--trust", action="store_true", help="import the run's own packages and wrappers"
    )
    return parser


# Episodes, seconds and the like; far more is a slip of the keyboard.
_MOST = 1_000_000


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return an argparse type that accepts numbers above 0, up to a million."""

    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value <= _MOST:
            raise ValueError
        return value

    parse.__name__ = "number above 0, up to a million"
    return parse


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


_not_negative.__name__ = "whole number of at least 0"


def note(text: str) -> None:
    """Print a remark where it does not disturb the output that others read."""
    print(text, file=sys.stderr)

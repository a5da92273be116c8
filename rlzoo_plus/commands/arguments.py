"""The arguments that commands on a run share, and their types."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.runs.run import Run

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy

RUN_HELP = (
    "a run directory, e.g. outputs/<env>/<algo>/..., or the end of its path; latest; a bundle, as "
    "a folder or a zip"
)


def run_parser(verb: str, description: str, example: str) -> ArgumentParser:
    """Return a parser with the arguments that all commands on a run share."""
    parser = CommandParser(
        prog=f"rlzoo-plus {verb}", description=f"{description} Example: {example}"
    )
    add_run(parser)
    parser.add_argument(
        "--seed", type=_not_negative, default=0, help="another set of held-out episodes"
    )
    parser.add_argument("--stochastic", action="store_true", help="act with exploration")
    return parser


def add_run(parser: ArgumentParser) -> None:
    """Add the arguments that name one policy of a run."""
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add("--which", help="best (default), final, or the step of a checkpoint")
    add("--trust", action="store_true", help="import the run's own packages and wrappers")


def opened(options: Namespace) -> tuple[Run, Policy]:
    """Open the policy that the arguments name, to act on one thread.

    Raises:
        ConfigError: There is none, it is damaged, or it needs trust.
    """
    run = Run.open(options.run, trust=options.trust)
    run.require_trust()
    import torch

    # Acting alone is fastest with one.
    torch.set_num_threads(1)
    options.which = options.which or run.which
    return run, run.policy(options.which)


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

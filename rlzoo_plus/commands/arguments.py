"""The arguments that several commands share, and their types."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

import rlzoo_plus
from rlzoo_plus.analysis.find_run import LATEST
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import CommandParser, command_parser
from rlzoo_plus.errors import ConfigError

RUN_HELP = (
    "a run directory such as outputs/<env>/<algo>/..., the end of its path, latest, trained/NAME, "
    "MODEL@production"
)
WHICH_HELP = "the policy: best (default; else final), final, or the step of a checkpoint"
# Episodes, seconds and the like; far more is a typing error.
_MOST = 1_000_000


def run_parser(verb: str, description: str, example: str) -> CommandParser:
    """Return a parser with the arguments of all commands that play a policy."""
    parser = command_parser(verb, description, example)
    add_policy(parser)
    add = parser.add_argument
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    add("--stochastic", action="store_true", help="act with exploration")
    return parser


def add_policy(parser: ArgumentParser) -> None:
    """Add the arguments that name one policy of a run."""
    add = parser.add_argument
    add(
        "run",
        metavar="RUN",
        help=f"{RUN_HELP}; a bundle (a folder or a zip); s3://..., hf://org/name",
    )
    add("--which", help=WHICH_HELP)
    add_trust(parser)


def add_trust(parser: ArgumentParser) -> None:
    """Add the arguments that allow to play what comes from elsewhere, or has changed since."""
    add = parser.add_argument
    add("--trust", action="store_true", help="import the run's own packages and wrappers")
    other_help = "play though the environment is not the one of its training any more"
    add("--other-env", action="store_true", help=other_help)


def opened(options: Namespace) -> tuple[rlzoo_plus.Run, rlzoo_plus.Policy]:
    """Open the policy that the arguments name, and limit torch to one thread."""
    run = open_to_play(options.run, options)
    run.require_trust()
    import torch

    # One thread is the fastest for acting in one environment.
    torch.set_num_threads(1)
    options.which = options.which or run.which
    return run, run.policy(options.which)


def open_to_play(name: str, options: Namespace) -> rlzoo_plus.Run:
    """Open the run whose policy is to be played; print which it is where that was not typed.

    `options` has the arguments of `add_trust`, and `which`, which is None if it was not typed.
    """
    which: str | None = options.which
    # torch is imported here, when the arguments are known to be right.
    run = rlzoo_plus.Run.open(
        name, trust=options.trust, wanted=which or "", other_env=options.other_env
    )
    notes = [f"{LATEST} is {printable(run.path)}"] if name == LATEST else []
    if which is None and run.which == "final" and not name.rstrip("/").endswith("final"):
        notes.append("it was never evaluated: its final policy is used")
    if notes:
        # The output may be JSON.
        print(f"note: {', '.join(notes)}", file=sys.stderr)
    return run


def require_display(verb: str, instead: str) -> None:
    """Refuse to open a window where there is no display: PyBullet would kill the process."""
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not has_display and sys.platform.startswith("linux"):
        raise ConfigError(
            f"{verb} needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set; {instead}"
        )


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return an argparse type that accepts numbers above 0, up to a million."""

    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value <= _MOST:
            raise ValueError
        return value

    parse.__name__ = "number above 0, up to a million"
    return parse


def not_negative(text: str) -> int:
    """Parse a whole number of at least 0."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


not_negative.__name__ = "whole number of at least 0"

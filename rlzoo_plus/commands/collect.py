"""`rlzoo-plus collect`: episodes of a policy, a person or a robot's log, to learn from."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import rlzoo_plus
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import (
    RUN_HELP,
    WHICH_HELP,
    add_trust,
    not_negative,
    open_to_play,
    positive,
)
from rlzoo_plus.commands.replay import run_of
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load

_PORT = 8504
_ONLY_BY_HAND = ("port", "speed")
_NOT_BY_HAND = ("which", "stochastic", "acted")


def main(arguments: list[str]) -> int:
    """Collect, write and print; return the exit code."""
    parser = command_parser(
        "collect",
        "Write demonstrations to a folder in the format of Minari or LeRobot: episodes that a "
        "trained policy plays in its own environment, from seeds that no evaluation has. Or those "
        "of a log: a session of run-robot, or the episodes that evaluate has saved, which are "
        "played again for what was seen. Or yours: --teleop serves a page to this machine on which "
        "you play the task with keys or a gamepad. Train with them: algo=bc data=DATASET, or "
        "algo=sac data=DATASET.",
        "trained/cartpole_bullet --episodes 20 --out demos\n"
        "         rlzoo-plus collect --teleop env=husky_drive --episodes 20 --out demos",
        usage="rlzoo-plus collect RUN|LOG --out DATASET [--episodes EPISODES] [--seed SEED] "
        "[--which WHICH] [--stochastic] [--run RUN] [--format {minari,lerobot}] [--trust]\n"
        "       rlzoo-plus collect --teleop RUN|KEY=VALUE ... --out DATASET "
        "[--episodes EPISODES] [--seed SEED] [--speed SPEED] [--port PORT] "
        "[--format {minari,lerobot}] [--trust]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="RUN|LOG", help=f"{RUN_HELP}, a bundle; or the folder of a "
        "session, of saved episodes, or of LeRobot's dataset; with --teleop also the task, as for "
        "train: env=NAME and other overrides")  # fmt: skip
    add("--teleop", action="store_true", help="play by hand, in the browser")
    add("--which", help=WHICH_HELP)
    add("--out", type=Path, required=True, metavar="DATASET", help="a new folder")
    add("--episodes", type=positive(int), default=50, help="how many to play (default 50)")
    add("--seed", type=not_negative, default=0, help="chooses other episodes (default 0)")
    add("--stochastic", action="store_true", help="act with exploration")
    add(
        "--run",
        dest="acted",
        metavar="RUN",
        help="whose policy acted, where a log does not say; the task of LeRobot's dataset",
    )
    add("--format", choices=("minari", "lerobot"), default="minari", help="of DATASET; training "
        "reads Minari's (default)")  # fmt: skip
    add("--speed", type=positive(float), help="of the task's time, by hand (default 1.0)")
    add("--port", type=int, help=f"of the page (default {_PORT})")
    add_trust(parser)
    options, rest = parser.parse_known_args(arguments)
    if rest and not options.teleop:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    words = [*options.names, *rest]
    _check(options, words)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise ConfigError(f"--out {printable(options.out)} holds files already. Name a new folder.")
    if options.teleop:
        playing: Any = import_module("rlzoo_plus.teleop.playing")
        summary = playing.collect_by_hand(
            _task(words, options),
            options.out,
            episodes=options.episodes,
            seed=options.seed,
            speed=options.speed or 1.0,
            port=_PORT if options.port is None else options.port,
            lerobot=options.format == "lerobot",
            tell=tell,
        )
        print(f"{summary}: {printable(options.out, LONGEST_LINE)}")
        return 0
    from rlzoo_plus.demonstrations import collecting

    summary = collecting.collect(
        words[0],
        options.out,
        play=lambda: _played(words[0], options),
        open_run=partial(rlzoo_plus.Run.open, trust=options.trust, other_env=options.other_env),
        run_of=lambda file, about: run_of(file, about, options.acted, trust=options.trust),
        acted=options.acted,
        lerobot=options.format == "lerobot",
    )
    print(f"{summary}: {printable(options.out, LONGEST_LINE)}")
    return 0


def _check(options: Namespace, words: list[str]) -> None:
    """Check that arguments of one way of collecting are not given with the other.

    Raises:
        ConfigError: They are, or it is not said what to collect.
    """
    names = {"acted": "run"}
    for name in _NOT_BY_HAND if options.teleop else _ONLY_BY_HAND:
        if getattr(options, name):
            which = "is not for --teleop" if options.teleop else "is for --teleop"
            raise ConfigError(f"--{names.get(name, name)} {which}. Leave it out.")
    if not words:
        raise ConfigError("name a run, a log or, with --teleop, a task, such as env=husky_drive.")
    if not options.teleop and len(words) > 1:
        hint = " Overrides are for --teleop." if "=" in words[1] else ""
        raise ConfigError(f"collect takes one run or log, and not {printable(words[1])} too.{hint}")


def _task(words: list[str], options: Namespace) -> RunConfig:
    """Return the configuration whose task is played by hand."""
    if "=" in words[0] or words[0].startswith(("-", "~", "+")):
        return load(in_our_form("collect", words))
    if words[1:]:
        raise ConfigError(
            f"{printable(words[0])} is a run, whose task cannot be changed here: leave out "
            f"{printable(words[1])}."
        )
    run = open_to_play(words[0], options)
    run.require_trust()
    return run.config


def _played(name: str, options: Namespace) -> dict[str, Any]:
    run = open_to_play(name, options)
    return {
        "run": run,
        "which": options.which or run.which,
        "episodes": options.episodes,
        "seed": options.seed,
        "deterministic": not options.stochastic,
    }

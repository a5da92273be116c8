"""`rlzoo-plus collect`: episodes of a policy, or of a robot's log, as a dataset to learn from."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
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
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Collect, write and print; return the exit code."""
    parser = command_parser(
        "collect",
        "Write demonstrations to a folder in the format of Minari or LeRobot: episodes that a "
        "trained policy plays in its own environment, from seeds that no evaluation has. Or those "
        "of a log: a session of run-robot, or the episodes that evaluate has saved, which are "
        "played again for what was seen. Train with them: algo=bc data=DATASET, or algo=sac "
        "data=DATASET.",
        "trained/cartpole_bullet --episodes 20 --out demos",
    )
    add = parser.add_argument
    add("run", metavar="RUN|LOG", help=f"{RUN_HELP}, a bundle; or the folder of a session, of "
        "saved episodes, or of LeRobot's dataset")  # fmt: skip
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
    add_trust(parser)
    options = parser.parse_args(arguments)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise ConfigError(f"--out {printable(options.out)} holds files already. Name a new folder.")
    from rlzoo_plus.demonstrations import collecting

    summary = collecting.collect(
        options.run,
        options.out,
        play=lambda: _played(options),
        open_run=partial(rlzoo_plus.Run.open, trust=options.trust, other_env=options.other_env),
        run_of=lambda file, about: run_of(file, about, options.acted, trust=options.trust),
        acted=options.acted,
        lerobot=options.format == "lerobot",
    )
    print(f"{summary}: {printable(options.out, LONGEST_LINE)}")
    return 0


def _played(options: Namespace) -> dict[str, Any]:
    run = open_to_play(options.run, options)
    return {
        "run": run,
        "which": options.which or run.which,
        "episodes": options.episodes,
        "seed": options.seed,
        "deterministic": not options.stochastic,
    }

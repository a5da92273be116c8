"""`rlzoo-plus prefer`: which of two clips is better, and a reward model from the answers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from rlzoo_plus.commands.arguments import RUN_HELP, WHICH_HELP, add_trust, not_negative, positive
from rlzoo_plus.commands.arguments import open_to_play as opened
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError

_PORT = 8503


def main(arguments: list[str]) -> int:
    """Ask or fit; return the exit code."""
    parser = command_parser(
        "prefer",
        "Learn a reward from preferences. Asks in the browser of this machine which of two clips "
        "of a run is better; its policies mix in random actions. --fit learns from the answers; "
        "train with it: train reward_model=MODEL. Then ask about that run, with the same --out.",
        "trained/cartpole_bullet --out prefs",
    )
    add = parser.add_argument
    add("run", metavar="RUN|FOLDER", help=f"{RUN_HELP}; with --fit, FOLDER of --out")
    add("--out", type=Path, metavar="FOLDER", help="for clips and answers; what is there stays")
    add("--fit", type=Path, metavar="MODEL", help="write a reward model to this folder")
    add("--pairs", type=positive(int), default=40, help="how many (default 40)")
    add("--clip-steps", type=positive(int), default=50, help="of a clip (default 50)")
    add("--rater", default="person", help="person, or synthetic[:beta=1,gamma=0.9,mistake=0.1,"
        "skip=0.1,equal=0.1,seed=1]: answers from the true return, with errors")  # fmt: skip
    add("--members", type=positive(int), default=3, help="of the ensemble (default 3)")
    add("--which", help=WHICH_HELP.replace("default; else final", "of all by default"))
    add("--seed", type=not_negative, default=0, help="chooses other clips (default 0)")
    add("--port", type=int, default=_PORT, help="of the page (default %(default)s)")
    add_trust(parser)
    options = parser.parse_args(arguments)
    if (options.out is None) == (options.fit is None):
        raise ConfigError(
            "prefer RUN --out FOLDER asks, prefer FOLDER --fit MODEL learns. Name one."
        )
    # torch is imported here, when the arguments are known to be right.
    asking: Any = import_module("rlzoo_plus.preferences.asking")
    if options.fit is not None:
        tell(asking.fit_folder(Path(options.run), options.fit, options.members, options.seed))
    else:
        names = ("which", "clip_steps", "seed", "rater", "port")
        given = {name: getattr(options, name) for name in names}
        run = opened(options.run, options)
        asking.ask(run, options.out, n_pairs=options.pairs, tell=tell, **given)
    return 0

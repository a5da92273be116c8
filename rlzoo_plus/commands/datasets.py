"""`rlzoo-plus datasets`: list, show and check datasets of demonstrations."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import rlzoo_plus
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """List, show or check; return the exit code."""
    parser = command_parser(
        "datasets",
        "List the datasets below a folder, show what one holds, or check one: every number is "
        "read, and compared with its spaces and, with --run, with those of a run. Datasets are "
        "in the format of Minari (HDF5); nothing in them is executed.",
        "check demos --run trained/cartpole_bullet",
    )
    add = parser.add_argument
    add("action", choices=("list", "show", "check"), help="what to do")
    add("path", nargs="?", type=Path, metavar="DATASET|DIR", help="for list: a folder (default .)")
    add("--run", metavar="RUN", help=f"for check, whose task it must be: {RUN_HELP}")
    add("--trust", action="store_true", help="import that run's own packages and wrappers")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.run is not None and options.action != "check":
        raise ConfigError(f"datasets {options.action} takes no --run. Use datasets check.")
    from rlzoo_plus.demonstrations import overview

    if options.action == "list":
        rows = overview.listing(options.path or Path())
        if options.json:
            print(json.dumps({"datasets": rows}))
        else:
            print(overview.listed(rows) if rows else "no datasets; rlzoo-plus collect writes one")
        return 0
    if options.path is None:
        raise ConfigError(f"datasets {options.action}: name a dataset.")
    found = overview.shown(options.path)
    if options.run is not None:
        run = rlzoo_plus.Run.open(options.run, trust=options.trust)
        with closing(run.env(1)) as venv:
            overview.require_task(options.path, venv.observation_space, venv.action_space)
    if options.json:
        print(json.dumps(found))
    elif options.action == "show":
        print(overview.as_text(found))
    else:
        fits = "" if options.run is None else f"; it is of the task of {printable(options.run)}"
        episodes = counted(found["episodes"], "episode")
        print(f"{printable(options.path)} is whole: {episodes}{fits}")
    return 0

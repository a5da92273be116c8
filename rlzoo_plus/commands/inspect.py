"""`rlzoo-plus inspect`: a look at an environment, above all at a robot of the user's own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import CommandParser

_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    """Look, play at random, and print; return the exit code."""
    options, overrides = _parse(arguments)
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.inspection.report import as_data, inspect_env
    from rlzoo_plus.runs.compose import compose_run

    if options.picture is not None:
        from rlzoo_plus.inspection.report import check_path, make_picture

        check_path(options.picture)
    spec = compose_run(overrides).env
    inspection = inspect_env(spec, options.seconds)
    if options.json:
        print(json.dumps(as_data(inspection), indent=2))
    else:
        from rlzoo_plus.inspection.report import print_inspection

        print_inspection(make_console(), inspection)
    if options.picture is not None:
        make_picture(spec, options.picture)
        if not options.json:
            print(f"wrote {options.picture}")
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = CommandParser(
        prog="rlzoo-plus inspect",
        usage="rlzoo-plus inspect [--picture FILE] [--seconds SECONDS] [--json] [KEY=VALUE ...]",
        description="Look at an environment before it is trained: its spaces and its speed, and "
        "of a robot built on this project also joints, masses, the terms of its reward and why "
        "episodes end, all under random actions.",
        epilog="Example: rlzoo-plus inspect env=cartpole_bullet --picture start.png. The "
        "overrides, and --config-dir, are those of train.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="a .png: the start, and after random actions"
    )
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=_SECONDS,
        help=f"time for random play (default: {_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser.parse_known_args(arguments)

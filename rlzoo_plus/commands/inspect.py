"""`rlzoo-plus inspect`: show an environment, above all a robot of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, make_console


def main(arguments: list[str]) -> int:
    """Play random actions and print what is found; return the exit code."""
    parser = command_parser(
        "inspect",
        "Show an environment before it is trained, under random actions: its spaces and its speed; "
        "for a robot built with this project also joints, masses, reward terms and why episodes "
        "end. The overrides, and --config-dir, are those of train.",
        "env=cartpole_bullet --picture start.png",
        usage="rlzoo-plus inspect [--picture FILE] [--seconds SECONDS] [--json] [KEY=VALUE ...]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    picture_help = "write a .png: the start, and the state after random actions"
    add("--picture", type=Path, metavar="FILE", help=picture_help)
    add("--seconds", type=positive(float), default=2.0, help="time for random actions (default 2)")
    add("--json", action="store_true", help="print JSON, for programs")
    options, overrides = parser.parse_known_args(arguments)
    from rlzoo_plus.inspection.report import (
        as_data,
        check_path,
        inspect_env,
        make_picture,
        print_inspection,
    )
    from rlzoo_plus.runs.compose import compose_run

    if options.picture is not None:
        check_path(options.picture)
    spec = compose_run(overrides).env
    inspection = inspect_env(spec, options.seconds)
    if options.json:
        print(json.dumps(as_data(inspection), indent=2))
    else:
        print_inspection(make_console(), inspection)
    if options.picture is not None:
        make_picture(spec, options.picture)
        if not options.json:
            print(f"wrote {options.picture}")
    return 0

"""`rlzoo-plus deploy`: a policy as a folder that runs on a robot."""

from __future__ import annotations

import sys
from pathlib import Path

from rlzoo_plus.commands.arguments import add_policy
from rlzoo_plus.commands.export import add_value, export
from rlzoo_plus.commands.typed import command_parser


def main(arguments: list[str]) -> int:
    """Write the folder and check it; return 1 if it does not act as the policy."""
    parser = command_parser(
        "deploy",
        "Write a policy as a folder for a robot: files of NVIDIA's LEAPP, deploy.json with rate, "
        "names, units, limits and hashes, and a runtime that needs numpy and onnxruntime alone.",
        "trained/cartpole_bullet --out cartpole",
    )
    add_policy(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="the folder")
    add_value(parser)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    options.format, options.output = "leapp", options.out
    return export(options)

"""`rlzoo-plus shadow-report`: what a candidate would have done beside a server."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.serving.shadow_report import report


def main(arguments: list[str]) -> int:
    """Print the comparison; return 1 if there is too little for a verdict."""
    parser = command_parser(
        "shadow-report",
        "Compare what a candidate would have done with what `rlzoo-plus serve` did beside it: how "
        "often they agree, the difference of each entry of the action, commands beyond the "
        "robot's limits, and whether that is enough to judge (exit code 1: it is not).",
        "shadow.jsonl",
    )
    parser.add_argument("file", nargs="?", type=Path, default=Path("shadow.jsonl"), metavar="FILE",
        help="what serve wrote (default: %(default)s)")  # fmt: skip
    file = parser.parse_args(arguments).file
    found = report(file)
    if not found:
        tell(f"{printable(file)} holds no comparison yet")
    for one in found:
        tell(one.as_text())
    return 0 if found and all(one.lacks is None for one in found) else 1

"""`rlzoo-plus diagnose`: look into a trained policy, and at the reward it was given."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import add_policy, not_negative, open_to_play, positive
from rlzoo_plus.commands.typed import command_parser


def main(arguments: list[str]) -> int:
    """Diagnose and print one sentence for each finding; return the exit code."""
    parser = command_parser(
        "diagnose",
        "Diagnose a trained policy: its V or Q against the returns that followed, TD error, "
        "actions at their bounds, dead units, which entries of the observation matter (integrated "
        "gradients), and what the reward pays for without the task: doing nothing, random and "
        "constant actions, terms against success. A ! marks what deserves a look.",
        "outputs/cartpole_bullet/ppo/... --picture saliency.png",
    )
    add_policy(parser)
    add = parser.add_argument
    add("--episodes", type=positive(int), default=10, help="of each way to act (default 10)")
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    picture_help = "write a .png of the saliency: bars, or a heat map over pictures"
    add("--picture", type=Path, metavar="FILE", help=picture_help)
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    from rlzoo_plus.policies.diagnosis import diagnose, draw

    run = open_to_play(options.run, options)
    found = diagnose(run, options.which, options.episodes, options.seed)
    if options.picture is not None:
        draw(found, options.picture)
    if options.json:
        rows = [finite(asdict(finding)) for finding in found.findings]
        print(json.dumps({"run": str(run.path), "findings": rows}))
        return 0
    for finding in found.findings:
        mark = "!" if finding.is_warning else " "
        print(f"{mark} {finding.topic:<10}{printable(finding.text, 1000)}")
    if options.picture is not None:
        print(f"wrote {printable(options.picture)}")
    return 0

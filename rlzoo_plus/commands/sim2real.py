"""`rlzoo-plus sim2real`: compare a log of a robot with the simulation a policy was trained in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rlzoo_plus.commands.arguments import add_policy, open_to_play
from rlzoo_plus.commands.replay import run_of
from rlzoo_plus.commands.typed import command_parser


def main(arguments: list[str]) -> int:
    """Compare and print; return the exit code."""
    parser = command_parser(
        "sim2real",
        "Compare a log of a robot with the simulation that a policy was trained in: each row is "
        "simulated for one control step, and the error is told by joint. Says the latency that "
        "fits best, which single parameter would close the gap, and whether the randomization of "
        "the training covers it. LOG is what `identify` takes: a CSV, the session of run-robot, "
        "or saved episodes.",
        "outputs/a1_walk/ppo/... log.csv",
    )
    add_policy(parser)
    add = parser.add_argument
    add("log", metavar="LOG", type=Path, help="a CSV, a saved episode or a folder of them")
    add("--json", action="store_true", help="print one JSON object")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="env.kwargs.engine=mujoco, ...")
    options = parser.parse_intermixed_args(arguments)
    run = open_to_play(options.run, options)
    run.require_trust()
    from rlzoo_plus.identify.gap import measure_gap

    gap, notes = measure_gap(
        options.log,
        run.changed_config(options.overrides)[0].env,
        lambda file, about: run_of(file, about, None, trust=options.trust),
    )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(json.dumps(gap.data()) if options.json else gap.table())
    return 0

"""`rlzoo-plus resume`: an unfinished run goes on from its newest whole checkpoint."""

from __future__ import annotations

import argparse

from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.typed import CommandParser


def main(arguments: list[str]) -> int:
    """Resume the run named; return the exit code of `train`."""
    options = _parse(arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.commands.train import train_plan
    from rlzoo_plus.runs.printing import set_up_logging
    from rlzoo_plus.runs.run import Run

    plan = Run.open(options.run, trust=options.trust).plan_to_resume(options.overrides)
    console = make_console()
    set_up_logging(plan.config.log.level, console)
    return train_plan(plan, console, command_line(["rlzoo-plus", "resume", *arguments]))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus resume",
        description="Let an unfinished run go on from its newest whole checkpoint, bit for bit as "
        "if it had never stopped. It needs nothing but the directory.",
        epilog="Example: rlzoo-plus resume outputs/cartpole_bullet/ppo/2026-01-31_12-00-00-s0",
    )
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="what may change: n_timesteps (upwards), checkpoint.*, log.*, report.*",
    )
    parser.add_argument(
        "--trust", action="store_true", help="import the run's own packages, wrappers and callbacks"
    )
    return parser.parse_args(arguments)

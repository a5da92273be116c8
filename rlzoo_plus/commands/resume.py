"""`rlzoo-plus resume`: resume an unfinished run from its newest whole checkpoint."""

from __future__ import annotations

import rlzoo_plus
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.train import train_plan
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.runs.printing import set_up_logging


def main(arguments: list[str]) -> int:
    """Resume a run; return the exit code of `train`."""
    parser = command_parser(
        "resume",
        "Resume an unfinished run from its newest whole checkpoint, bit for bit as if it had never "
        "stopped. Only the run directory is needed; a run in S3 is brought to outputs/ first, and "
        "sent there again while it trains. A larger n_timesteps extends a run, also a finished "
        "one; such a run is not exact: it differs from one that had this length from the start.",
        "outputs/cartpole_bullet/ppo/2026-01-31_12-00-00-s0",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="what may change: n_timesteps (only larger; the run is then not exact), "
        "checkpoint.*, log.*, report.*, export.*, tracker, store",
    )
    trust = "import the run's packages, wrappers and callbacks, use its tracker and store"
    add("--trust", action="store_true", help=trust)
    options = parser.parse_args(arguments)
    plan = rlzoo_plus.Run.open(options.run, trust=options.trust).plan_to_resume(options.overrides)
    console = make_console()
    set_up_logging(plan.config.log.level, console)
    return train_plan(plan, console, command_line(["rlzoo-plus", "resume", *arguments]))

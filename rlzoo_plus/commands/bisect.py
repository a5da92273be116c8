"""`rlzoo-plus bisect`: find the first update of a run after which a condition holds."""

from __future__ import annotations

from pathlib import Path

import rlzoo_plus
from rlzoo_plus import accelerators
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.commands.arguments import RUN_HELP, not_negative
from rlzoo_plus.commands.typed import command_parser, make_console, tell
from rlzoo_plus.runs.printing import set_up_logging
from rlzoo_plus.timetravel.condition import parse_condition


def main(arguments: list[str]) -> int:
    """Bisect, print what was found and write it; return the exit code."""
    parser = command_parser(
        "bisect",
        "Find the first update of a run after which a logged metric meets a condition, or a "
        "weight, a gradient or a loss is not finite: the run is replayed, bit for bit, from the "
        "newest checkpoint before. Shows the batch, gradients, losses, weights and learning rates "
        "of that update and of the one before. Nothing of the run changes.",
        "RUN --when 'train/approx_kl > 0.5'   or: --when nan",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    when_help = "METRIC OP NUMBER, with a metric of metrics.jsonl and one of < <= > >=; or nan"
    add("--when", required=True, metavar="CONDITION", help=when_help)
    after_help = "what comes before does not count (default 0)"
    add("--after", type=not_negative, default=0, metavar="STEP", help=after_help)
    add("--from-start", action="store_true", help="replay from the seed, not from a checkpoint")
    add("--out", type=Path, metavar="FILE", help="JSON with all of it (default: RUN/bisect.json)")
    add("--trust", action="store_true", help="import the run's packages, wrappers and callbacks")
    options = parser.parse_args(arguments)
    condition = parse_condition(options.when)
    run = rlzoo_plus.Run.open(options.run, trust=options.trust)
    out = options.out or run.folder / "bisect.json"
    if options.out is None:
        check_inside(run.folder, out)
    run.require_trust(to_train=True, without_store=True)
    set_up_logging("warning", make_console(stderr=True))
    accelerators.before_torch(run.config)
    from rlzoo_plus.timetravel import bisect_report, bisection

    found = bisection.bisect(run, condition, options.after, from_start=options.from_start)
    bisect_report.write_report(found, out)
    tell(f"{bisect_report.text_of(found)}\n\nall of it: {out}")
    return 0

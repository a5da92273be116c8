"""`rlzoo-plus run-robot`: a saved policy acts on a robot behind a driver, at a fixed rate."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import add_policy, not_negative, open_to_play, positive
from rlzoo_plus.commands.typed import command_parser, tell


def main(arguments: list[str]) -> int:
    """Run the policy on the robot; return the exit code."""
    parser = command_parser(
        "run-robot",
        "Let a trained policy act on a robot behind a driver, at a fixed rate, with the "
        "observations, rewards and ends of its own task. The robot moves slowly to where an "
        "episode starts. Whatever fails ends in the robot's safe action, and is named: an old or "
        "impossible reading, an action that is no number or beyond the limits, missed deadlines, "
        "a lost connection, an error, a signal, `rlzoo-plus override`. Writes a log and a report. "
        "Exit code 0: it ended as planned.",
        "trained/cartpole_bullet --driver sim --minutes 1",
    )
    add_policy(parser)
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="env.kwargs.* change the task, as a "
        "command to follow")  # fmt: skip
    add("--driver", required=True, metavar="NAME", help="sim, or another that is installed; or "
        "the dotted path of your own")  # fmt: skip
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="options",
        help="an option of the driver; again for more")  # fmt: skip
    add("--hz", type=positive(float), help="decisions a second (default: as it was trained)")
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--minutes", type=positive(float), help="end after so long")
    how_long.add_argument("--episodes", type=positive(int), help="end after so many (default 1)")
    add("--seed", type=not_negative, default=0, help="chooses other held-out episodes (default 0)")
    add("--safe", choices=("hold", "damp", "stop"), help="what a fault ends in (default: what the "
        "robot names first)")  # fmt: skip
    add("--missed", type=positive(int), default=3, metavar="N",
        help="missed deadlines in a row that end it (default 3)")  # fmt: skip
    add("--ask", action="store_true", help="wait for Enter before each episode")
    add("--dry-run", action="store_true", help="read and decide, and never command")
    add("--out", type=Path, metavar="DIR", help="of the log (default: outputs/robot/TIME)")
    options = parser.parse_intermixed_args(arguments)
    run = open_to_play(options.run, options.which, trust=options.trust)
    run.require_trust()
    from rlzoo_plus.control import start

    outcome, folder = start.on_robot(run, options, ["run-robot", *arguments], tell)
    tell(start.report(outcome))
    tell(f"{printable(folder / 'report.txt', LONGEST_LINE)}")
    return outcome.code

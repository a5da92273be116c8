"""`rlzoo-plus run-robot`: a saved policy acts on a robot behind a driver, at a fixed rate."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import rlzoo_plus
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.arguments import add_policy, not_negative, open_to_play, positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load_noting
from rlzoo_plus.runs.plan import Start, plan_run

# Of a new run that learns on a robot, unless it says otherwise: one robot, and one core of two.
_ALONE = {"n_envs": "n_envs=1", "num_threads": "num_threads=1"}


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
        "command to follow; with --learn as for train")  # fmt: skip
    add("--learn", action="store_true", help="learn there, in a process of its own: RUN is one "
        "that has, which goes on, or KEY=VALUE of a new one")  # fmt: skip
    add("--queue", type=positive(int), metavar="N", help="with --learn, transitions that may wait "
        "to be learned from (default 1000; 8 on a simulated clock)")  # fmt: skip
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
    if options.learn:
        return _learn(options, arguments)
    if options.queue is not None:
        raise ConfigError("--queue has no effect without --learn. Leave it out.")
    run = open_to_play(options.run, options)
    run.require_trust()
    from rlzoo_plus.control import start

    outcome, folder = start.on_robot(run, options, ["run-robot", *arguments], tell)
    _tell_report(start.report(outcome), folder)
    return outcome.code


def _learn(options: Namespace, arguments: list[str]) -> int:
    """Let a run learn on the robot; return the exit code."""
    if options.dry_run or options.which is not None:
        what = "--dry-run" if options.dry_run else "--which"
        raise ConfigError(f"{what} does not go with --learn. Leave one of them out.")
    command = command_line(["rlzoo-plus", "run-robot", *arguments])
    if "=" in options.run:
        typed = [options.run, *options.overrides]
        known = {word.partition("=")[0].lstrip("+") for word in typed}
        config, notes = load_noting(
            [*(word for key, word in _ALONE.items() if key not in known), *typed]
        )
        plan = plan_run(config)
    else:
        run = rlzoo_plus.Run.open(options.run, trust=options.trust)
        plan, notes = run.plan_to_resume(options.overrides), []
    if plan.start is Start.DONE:
        raise ConfigError(
            f"run_dir={plan.config.run_dir} has all its {plan.config.n_timesteps:,} steps. A "
            "larger n_timesteps goes on."
        )
    for note in notes:
        tell(f"note: {note}")
    from rlzoo_plus.control import start

    learning = start.Learning(plan, command, options.queue)
    run = rlzoo_plus.Run(plan=plan, command=command, trust=True)
    outcome, folder = start.on_robot(run, options, ["run-robot", *arguments], tell, learning)
    _tell_report(start.report(outcome), folder)
    tell("learning from what is left")
    tell(learning.finish())
    return outcome.code


def _tell_report(report: str, folder: Path) -> None:
    tell(report)
    tell(f"{printable(folder / 'report.txt', LONGEST_LINE)}")

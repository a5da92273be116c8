"""`rlzoo-plus doctor`: check every job of a command at once, and measure the training speed."""

from __future__ import annotations

from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.errors import ConfigError

_SHORTEST_PROBE_S = 2.0


def main(arguments: list[str]) -> int:
    """Check all jobs; return 0 if they can be trained, else 2."""
    parser = command_parser(
        "doctor",
        "Check every job of a train command without running it, show all errors and warnings at "
        "once, and train for some seconds in a temporary directory to measure the speed. The "
        "overrides are those of train; several values for one of them imply -m. Exit code: 0, or 2 "
        "if train would refuse a job. --learn says why a run may not learn.",
        "algo=ppo,sac 'seed=range(0,5)'",
        usage="rlzoo-plus doctor [-m] [--learn | --no-probe | --probe SECONDS] [--json] "
        "[KEY=VALUE ...]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--probe", type=float, default=20.0, metavar="SECONDS", help="time to measure (default 20)")
    add("--no-probe", dest="probe", action="store_const", const=0.0, help="do not measure")
    add("--learn", action="store_true", help="probe the environment: why does a run not learn?")
    add("--json", action="store_true", help="print JSON, for programs")
    options, overrides = parser.parse_known_args(arguments)
    if options.probe and options.probe < _SHORTEST_PROBE_S:
        raise ConfigError(
            f"--probe {options.probe:g}: needs at least {_SHORTEST_PROBE_S:g} seconds. "
            "Leave it out with --no-probe."
        )
    # What checks jobs takes a moment to import, which a mistake above need not wait for.
    from rlzoo_plus.commands.doctor_report import examine, explain

    overrides = in_our_form("doctor", overrides)
    if options.learn:
        return explain(overrides, as_json=options.json)
    return examine(overrides, options.probe, as_json=options.json)

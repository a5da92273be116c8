"""`rlzoo-plus benchmark`: a fixed suite of algorithms and environments, as a table."""

from __future__ import annotations

import sys
from pathlib import Path

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.sweeps.suites import SUITES, run_suite, suite_table

_SEEDS = 5


def main(arguments: list[str]) -> int:
    """Train what is missing, print the table, and return 1 if a run has failed."""
    about = "; ".join(f"{name}: {suite.about}" for name, suite in SUITES.items())
    parser = command_parser(
        "benchmark",
        "Train a fixed suite with its tuned values over several seeds, and print a table beside "
        "published scores. The same command again trains only what is missing. Suites: "
        f"{about}.",
        "--suite smoke --seeds 3 infra.workers=2 --out benchmark.md",
    )
    add = parser.add_argument
    add("--suite", required=True, metavar="SUITE", help=f"one of {', '.join(SUITES)}")
    add("--seeds", type=positive(int), default=_SEEDS, metavar="N", help="seeds 0 to N-1 (5)")
    add("--out", type=Path, metavar="FILE.md", help="also write the table into a file")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="for all runs, e.g. n_timesteps=10000")
    options = parser.parse_intermixed_args(arguments)
    folders = run_suite(options.suite, range(options.seeds), options.overrides)
    table, notes = suite_table(folders)
    for note in notes:
        print(note, file=sys.stderr)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        words = [f"--suite {options.suite} --seeds {options.seeds}", *options.overrides]
        command = " ".join(["rlzoo-plus benchmark", *words])
        write_atomic(options.out, f"# Benchmark\n\n`{command}`\n\n{table}")
    print(f"\n{table}", end="")
    return 1 if notes else 0

"""`rlzoo-plus benchmark`: a suite of algorithms and environments, beside published scores."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.config.overrides import typed_values
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.suites.suite_file import load_suite, shipped_suites
from rlzoo_plus.suites.suite_page import page, rows_of, table
from rlzoo_plus.suites.suite_results import Results
from rlzoo_plus.suites.suite_run import SuiteRun
from rlzoo_plus.sweeps.ledger import NAME as LEDGER
from rlzoo_plus.sweeps.sweep_job import sweep_dir


def main(arguments: list[str]) -> int:
    """Train what is missing, print the table, and write the page; return the sweep's code."""
    shipped = "; ".join(f"{name}: {load_suite(name).about}" for name in shipped_suites())
    parser = command_parser(
        "benchmark",
        "Train the cells of a suite, ALGO:ENV each, with their tuned values over several seeds, "
        "and print a table beside published scores. The same command again trains only what is "
        f"missing. Suites: {shipped}.",
        "--suite bullet --cells ppo:hopper_bullet trpo:reacher_bullet --budget 8 --write page.md",
    )
    add = parser.add_argument
    add("--suite", required=True, metavar="SUITE", help="one of these, or FILE.yaml of your own")
    add("--cells", nargs="+", default=[], metavar="CELL", help="these cells only, e.g. ppo:a1_walk")
    add("--seeds", type=_seeds, default="0,1,2", metavar="N,N,...", help="seeds (0,1,2)")
    add(
        "--budget",
        type=positive(float),
        metavar="HOURS",
        help="start no run that is not expected to end by then; the cheapest cells first",
    )
    add("--workers", type=positive(int), metavar="N", help="runs at once, as infra.workers=N")
    add("--no-train", action="store_true", help="only collect what has finished, and write")
    add(
        "--results",
        type=Path,
        metavar="FILE.json",
        help="where results are kept (results.json in the sweep benchmark-SUITE)",
    )
    add("--write", type=Path, metavar="FILE.md", help="write a page, from the results alone")
    add("--trust", action="store_true", help="import the runs' own packages and wrappers")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="for all runs, e.g. fast=bfloat16")
    options = parser.parse_intermixed_args(arguments)
    # Overrides may follow the cells.
    overrides = [*options.overrides, *(word for word in options.cells if "=" in word)]
    names = [word for word in options.cells if "=" not in word]
    if odd := [word for word in options.overrides if "=" not in word]:
        raise ConfigError(f"{odd[0]!r} is no override such as n_envs=4. Cells follow --cells.")
    suite = load_suite(options.suite, overrides)
    sweep = sweep_dir(typed_values(overrides).get("sweep", f"benchmark-{suite.name}"))
    file = options.results or sweep / "results.json"
    results = Results(file, suite.name)
    if options.workers is not None:
        overrides.append(f"infra.workers={options.workers}")
    cells, code = suite.chosen(names), 0
    if not options.no_train or (sweep / LEDGER).is_file():
        how = {"hours": options.budget, "trains": not options.no_train, "trust": options.trust}
        run = SuiteRun(suite, cells, options.seeds, overrides, results, make_console, **how)
        code = run.train()
    if done := rows_of(suite, results):
        print(f"\n{table(done)}")
    if options.write is not None:
        words = ["rlzoo-plus benchmark", f"--suite {options.suite}"]
        words += [f"--results {options.results}"] if options.results else []
        options.write.parent.mkdir(parents=True, exist_ok=True)
        command = " ".join([*words, "--no-train", f"--write {options.write}"])
        write_atomic(options.write, page(suite, results, command))
    return code


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = [-1]
    if min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r}: must be seeds such as 0,1,2, each once")
    return seeds

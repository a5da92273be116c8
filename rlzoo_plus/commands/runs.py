"""Owns `rlzoo-plus runs`: the list of runs below a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from rlzoo_plus.analysis.runs import (
    COLUMNS,
    RIGHT,
    STATES,
    RunSummary,
    aligned,
    cells,
    find_runs,
    summarise,
)
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.commands.typed import CommandParser, tell

COLOURS = {
    "running": "cyan",
    "finished": "green",
    "interrupted": "yellow",
    "failed": "red",
    "died": "red",
    "damaged": "magenta",
}
# Newest and best first; what is not known comes last.
SORT_KEYS: dict[str, Callable[[RunSummary], Any]] = {
    "started": lambda run: -(run.started_at or 0.0),
    "best": lambda run: (run.best is None, -(run.best or 0.0)),
    "algo": lambda run: run.algo or "~",
    "env": lambda run: run.env or "~",
    "state": lambda run: STATES.index(run.state),
}


def main(argv: list[str]) -> int:
    """Print the runs below a folder as a table or as JSON."""
    arguments = _parse(argv)
    folder = arguments.dir or OUTPUTS
    is_missing_default = arguments.dir is None and not folder.exists()
    runs = [] if is_missing_default else [summarise(run) for run in find_runs([folder])]
    chosen = [run for run in runs if _matches(run, arguments)]
    # Sorting is stable: within an algorithm, the newest stay first.
    for key in ("started", arguments.sort):
        chosen.sort(key=SORT_KEYS[key])
    if arguments.json:
        print(json.dumps([{**asdict(run), "path": str(run.path)} for run in chosen], indent=2))
    elif chosen:
        _print_table([cells(run) for run in chosen])
    else:
        tell(printable_lines(_nothing(folder, runs)))
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus runs",
        description="List runs: state, algorithm, environment, steps, best return.\n\n"
        "Example: rlzoo-plus runs --env cartpole_bullet --sort best",
        epilog="died: it says it runs, but its process is gone. damaged: it cannot be read.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("dir", nargs="?", type=Path, metavar="DIR", help=f"where to look (default: {OUTPUTS})")
    add("--json", action="store_true", help="print JSON: every field, times in seconds")
    add("--sort", choices=list(SORT_KEYS), default="started", help="default: %(default)s")
    add("--algo", metavar="A", help="runs of this algorithm only")
    add("--env", metavar="E", help="runs on this environment only")
    add("--state", choices=STATES, metavar="S", help=f"one of {', '.join(STATES)}")
    return parser.parse_args(argv)


def _matches(run: RunSummary, wanted: argparse.Namespace) -> bool:
    pairs = ((wanted.algo, run.algo), (wanted.env, run.env), (wanted.state, run.state))
    return all(value is None or value == own for value, own in pairs)


def _nothing(folder: Path, runs: list[RunSummary]) -> str:
    if not runs:
        return (
            f"No run in {folder} yet. Start one:\n  rlzoo-plus train algo=ppo env=cartpole_bullet"
        )
    algos, envs = ({run.algo or "?" for run in runs}, {run.env or "?" for run in runs})
    return (
        f"None of the {len(runs)} runs in {folder} matches. There are algo: "
        f"{', '.join(sorted(algos))}; env: {', '.join(sorted(envs))}; state: "
        f"{', '.join(sorted({run.state for run in runs}))}."
    )


def _print_table(rows: list[tuple[str, ...]]) -> None:
    lines = aligned([COLUMNS, *rows])
    if not sys.stdout.isatty():
        print("\n".join(lines))
    elif max(len(line) for line in lines) + 2 * len(COLUMNS) <= get_terminal_size().columns:
        _print_rich(rows)
    else:
        # Too narrow: the path, which is there to be copied, gets a line of its own.
        short = aligned([COLUMNS[:-1], *(row[:-1] for row in rows)])
        print(short[0])
        for line, row in zip(short[1:], rows, strict=True):
            print(f"{line}\n  {row[-1]}")


def _print_rich(rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=True)
    for state, *rest in rows:
        table.add_row(Text(state, style=COLOURS[state]), *(Text(cell) for cell in rest))
    Console().print(table)

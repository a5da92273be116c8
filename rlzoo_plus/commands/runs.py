"""`rlzoo-plus runs`: list the runs below a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from rlzoo_plus.analysis.index import load_runs
from rlzoo_plus.analysis.run_list import COLUMNS, STATES, RunSummary, aligned, cells
from rlzoo_plus.analysis.shipped_runs import trained_dir
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.commands.typed import command_parser, make_console, tell
from rlzoo_plus.policies.shipped_table import is_trained_dir
from rlzoo_plus.store.cache import mirror_light_files
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.mirror import RUNS

COLOURS = {
    "running": "cyan",
    "finished": "green",
    "interrupted": "yellow",
    "failed": "red",
    "died": "red",
    "damaged": "magenta",
}
# Newest and best first; unknown values last.
SORT_KEYS: dict[str, Callable[[RunSummary], Any]] = {
    "started": lambda run: -(run.started_at or 0.0),
    "best": lambda run: (run.best is None, -(run.best or 0.0)),
    "algo": lambda run: run.algo or "~",
    "env": lambda run: run.env or "~",
    "state": lambda run: STATES.index(run.state),
}


def main(arguments: list[str]) -> int:
    """Print the runs below a folder as a table or as JSON."""
    options = _parse(arguments)
    folder, url = folder_of(options.dir)
    is_missing_default = options.dir is None and not folder.exists()
    entries = [] if is_missing_default else load_runs([folder])
    runs = [entry.summary for entry in entries]
    reasons = {entry.summary.path: entry.reason for entry in entries}
    urls = {run.path: f"{url}/{run.path.relative_to(folder)}" for run in runs if url is not None}
    wanted = {name: getattr(options, name) for name in ("algo", "env", "state")}
    given = {name: value for name, value in wanted.items() if value is not None}
    chosen = [run for run in runs if all(getattr(run, name) == given[name] for name in given)]
    # Sorting is stable: within an algorithm, the newest stay first.
    for key in ("started", options.sort):
        chosen.sort(key=SORT_KEYS[key])
    if options.json:
        told = [(run, urls.get(run.path, str(run.path))) for run in chosen]
        rows = [{**asdict(run), "path": path, "reason": reasons[run.path]} for run, path in told]
        print(json.dumps(rows, indent=2))
    elif chosen:
        _print_table([cells(run, urls.get(run.path)) for run in chosen])
    elif runs:
        names = {name: sorted({getattr(run, name) or "?" for run in runs}) for name in wanted}
        there = "; ".join(f"{name}: {', '.join(found)}" for name, found in names.items())
        none = f"None of the {len(runs)} runs in {url or folder} matches. There are {there}."
        print(printable_lines(none))
    else:
        start = "Start one:\n  rlzoo-plus train algo=ppo env=cartpole_bullet"
        tell(printable_lines(f"No run in {url or folder} yet. {start}"))
    return 0


def folder_of(name: str | None) -> tuple[Path, str | None]:
    """Return where to look, and the URL that stands for it if it is a copy of a store."""
    if name is None or not name.startswith("s3://"):
        is_shipped = name is not None and is_trained_dir(name)
        return trained_dir() if is_shipped else Path(name or OUTPUTS), None
    store = open_store(name)
    return mirror_light_files(store), f"{store.url}/{RUNS}"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "runs",
        "List runs: state, algorithm, environment, steps, best return. The state `died` means that "
        "the process of a run ended unexpectedly; `damaged`, that a run cannot be read.",
        "--env cartpole_bullet --sort best",
    )
    add = parser.add_argument
    add("dir", nargs="?", metavar="DIR", help=f"a folder, or s3://... (default: {OUTPUTS})")
    add("--json", action="store_true", help="print JSON: every field, times in seconds")
    add("--sort", choices=list(SORT_KEYS), default="started", help="default: %(default)s")
    add("--algo", metavar="ALGO", help="only runs of this algorithm")
    add("--env", metavar="ENV", help="only runs on this environment")
    add("--state", choices=STATES, metavar="STATE", help=f"one of {', '.join(STATES)}")
    return parser.parse_args(arguments)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    head, *lines = aligned([COLUMNS, *rows])
    if not sys.stdout.isatty():
        print("\n".join([head, *lines]))
        return
    if max(map(len, lines)) > get_terminal_size().columns:
        # The path gets its own line, so that it can be copied.
        head, *lines = aligned([COLUMNS[:-1], *(row[:-1] for row in rows)])
        lines = [f"{line}\n  {row[-1]}" for line, row in zip(lines, rows, strict=True)]
    from rich.text import Text

    console = make_console()
    console.print(Text(head, style="bold"), soft_wrap=True)
    for line, (state, *_) in zip(lines, rows, strict=True):
        text = Text(line)
        text.stylize(COLOURS[state], 0, len(state))
        console.print(text, soft_wrap=True)

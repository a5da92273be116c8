"""`rlzoo-plus ls`: list the sweeps and folders of runs of a store, or the shipped policies."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich import table as tables
from rich import text

from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.analysis.shipped_runs import TRAINED
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser, make_console, tell
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.shipped_table import is_trained_dir, listing, shipped_policies
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.workers.store_sweep import list_folders, shown_name

STORE_HELP = f"s3://bucket/prefix, a shared folder, or {TRAINED}"
_HEADS = ("name", "done", "failed", "running", "waiting", "last beat", "best return")


def main(arguments: list[str]) -> int:
    """Print a line for each sweep, and for each other folder of runs."""
    parser = command_parser(
        "ls",
        "List the sweeps and other folders of runs in a store: how many runs are in each state, "
        "when a worker gave its last sign of life, and the best mean return. It reads what workers "
        "report while they train, one small object a run; `rlzoo-plus runs STORE` reads the files "
        f"of each run. `rlzoo-plus ls {TRAINED}` lists the trained policies that come with the "
        "package, and what they earn in held-out episodes.",
        "s3://my-bucket/lab",
    )
    parser.add_argument("store", metavar="STORE", help=STORE_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options = parser.parse_args(arguments)

    if is_trained_dir(options.store):
        return _list_shipped(as_json=options.json)
    if "://" not in options.store and not Path(options.store).is_dir():
        raise ConfigError(f"{printable(options.store)}: no such folder. Name one, or s3://...")
    store = open_store(options.store)
    folders = list_folders(store)
    if options.json:
        print(json.dumps([{**asdict(f), "url": f"{store.url}/{f.name}"} for f in folders]))
        return 0
    if not folders:
        tell(f"nothing in {printable(store.url)} yet. Send a run: rlzoo-plus push RUN STORE")
        return 0

    table = tables.Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in _HEADS:
        table.add_column(head, justify="left" if head == "name" else "right", no_wrap=True)
    for folder in folders:
        counts = [folder.counts[name] for name in _HEADS[1:5]]
        cells = [f"{count:,}" if count else "-" for count in counts]
        if folder.cancelled:
            cells[-1] += f" ({folder.cancelled:,} cancelled)"
        cells.append("-" if folder.newest_s is None else f"{duration(folder.newest_s)} ago")
        cells.append("-" if folder.best is None else f"{folder.best:.1f}")
        table.add_row(*map(text.Text, [shown_name(folder), *cells]))
    console = make_console()
    console.print(table)
    if any(folder.is_sweep for folder in folders):
        console.print(f"more: rlzoo-plus sweep status {printable(store.url)}/NAME", markup=False)
    return 0


def _list_shipped(*, as_json: bool) -> int:
    policies = shipped_policies()
    if as_json:
        print(json.dumps([asdict(one) for one in policies]))
    elif policies:
        print(listing(policies))
        tell(f"next: rlzoo-plus enjoy {policies[0].name}")
    else:
        raise ConfigError(f"rlzoo_plus was installed without {TRAINED}/.")
    return 0

"""`rlzoo-plus worker`: train runs of a sweep in a store until none is left."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.printing import set_up_logging
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.submissions import Submissions, split_sweep_url
from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions
from rlzoo_plus.sweeps.launchers.local import LocalLauncher, is_of_aws
from rlzoo_plus.sweeps.multirun import PRELOAD
from rlzoo_plus.sweeps.sweep_job import busy_cores, load_job
from rlzoo_plus.workers.host import find_host
from rlzoo_plus.workers.restore import patiently
from rlzoo_plus.workers.task import Rules
from rlzoo_plus.workers.worker_loop import FOLDER, Times, Wait, Worker

if TYPE_CHECKING:
    from rlzoo_plus.store.contract import ArtifactStore
    from rlzoo_plus.sweeps.launchers.local import LocalLauncher


def main(arguments: list[str]) -> int:
    """Work on a sweep; return the exit code."""
    parser = command_parser(
        "worker",
        "Train runs of a sweep in a store that nobody trains, on this machine. Each is restored "
        "from the store, goes on bit for bit, and is sent while it trains. Start as many workers "
        "as you like, anywhere. One ends with 0 when every run of the sweep has ended, with 1 if "
        "one that it trained has failed. After Ctrl-C or SIGTERM its runs write a checkpoint, are "
        "sent, and go on elsewhere.",
        "s3://my-bucket/lab/first-sweep",
    )
    add = parser.add_argument
    add("sweep", metavar="STORE/SWEEP", help="s3://bucket/prefix/SWEEP, or a folder of a store")
    add(
        "--slots",
        type=positive(int),
        metavar="N",
        help="runs at once (default: as the cores allow)",
    )
    add("--dir", type=Path, metavar="DIR", help="the runs here (default: outputs/workers/SWEEP)")
    add("--trust", action="store_true", help="import the sweep's own code, also from the store")
    add("--any-version", action="store_true", help="take runs of other versions of rlzoo_plus")
    waiting = parser.add_mutually_exclusive_group()
    no_wait = "end when no run can be taken, also while other workers train"
    waiting.add_argument("--no-wait", action="store_true", help=no_wait)
    stay = "wait for new runs until a signal, as the workers of a study do"
    waiting.add_argument("--stay", action="store_true", help=stay)
    launch = "what a cloud started this machine for; a job of AWS Batch takes its run of it alone"
    add("--launch", metavar="NAME", help=launch)
    spot = "heed the notice of a Spot instance: checkpoint, send, and end with 75"
    add("--spot", action="store_true", help=spot)
    price = "the most that a slot of this machine costs; runs with a budget stop in time"
    add("--usd-per-hour", type=positive(float), metavar="X", help=price)
    options = parser.parse_args(arguments)

    url, sweep = split_sweep_url(options.sweep)
    console = make_console()
    set_up_logging("info", console)
    wait = Wait.ALWAYS if options.stay else Wait.NO if options.no_wait else Wait.OTHERS
    store = open_store(url)
    find_it = partial(
        find_host,
        store,
        sweep,
        launch=options.launch,
        spot=options.spot,
        usd_per_hour=options.usd_per_hour,
    )
    # Nobody starts a machine of a cloud again that ends with an error.
    patience_s = Times().stop_patience_s
    host = patiently(find_it, patience_s, lambda: False)
    worker = Worker(
        store,
        sweep,
        options.dir or FOLDER / sweep,
        patiently(lambda: _launcher(store, sweep, options.slots), patience_s, lambda: False),
        rules=Rules(options.trust, options.any_version),
        wait=wait,
        host=host,
        tell=lambda text: console.print(text, markup=False),
    )
    return worker.run()


def _launcher(store: ArtifactStore, sweep: str, slots: int | None) -> LocalLauncher:
    """Return the launcher of this machine; without `slots`, the cores that jobs use decide."""
    threads = 1
    for record in {} if slots else Submissions(store, sweep).records().values():
        # The worker tells about those that it refuses.
        with contextlib.suppress(ConfigError):
            threads = max(threads, busy_cores(load_job(FOLDER, record).config))
    return LocalLauncher(LauncherOptions(None, slots, threads).slots, PRELOAD, is_of_aws)

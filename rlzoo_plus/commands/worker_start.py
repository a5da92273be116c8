"""Starts a worker as the arguments of `rlzoo-plus worker` say."""

from __future__ import annotations

import argparse
import contextlib
from functools import partial

from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.printing import set_up_logging
from rlzoo_plus.store.contract import ArtifactStore, open_store
from rlzoo_plus.store.submissions import Submissions, split_sweep_url
from rlzoo_plus.store.sync import patiently
from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions
from rlzoo_plus.sweeps.launchers.local import LocalLauncher, is_of_aws
from rlzoo_plus.sweeps.multirun import PRELOAD
from rlzoo_plus.sweeps.sweep_job import busy_cores, load_job
from rlzoo_plus.workers.host import find_host
from rlzoo_plus.workers.task import Rules
from rlzoo_plus.workers.worker_loop import FOLDER, Times, Wait, Worker


def start(options: argparse.Namespace) -> int:
    """Work on a sweep until none of its runs can be taken; return the exit code."""
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

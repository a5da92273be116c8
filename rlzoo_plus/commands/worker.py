"""`rlzoo-plus worker`: train runs of a sweep in a store until none is left."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, make_console


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
    options = parser.parse_args(arguments)

    from rlzoo_plus.runs.printing import set_up_logging
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.submissions import split_sweep_url
    from rlzoo_plus.sweeps.task import Rules
    from rlzoo_plus.sweeps.worker import FOLDER, Wait, Worker, local_launcher

    url, sweep = split_sweep_url(options.sweep)
    console = make_console()
    set_up_logging("info", console)
    wait = Wait.ALWAYS if options.stay else Wait.NO if options.no_wait else Wait.OTHERS
    store = open_store(url)
    worker = Worker(
        store,
        sweep,
        options.dir or FOLDER / sweep,
        local_launcher(store, sweep, options.slots),
        rules=Rules(options.trust, options.any_version),
        wait=wait,
        tell=lambda text: console.print(text, markup=False),
    )
    return worker.run()

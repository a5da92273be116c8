"""`rlzoo-plus worker`: train runs of a sweep in a store until none is left."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser


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

    # What works takes a moment to import, which help and a mistake above need not wait for.
    from rlzoo_plus.commands.worker_start import start

    return start(options)

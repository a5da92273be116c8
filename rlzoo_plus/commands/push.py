"""`rlzoo-plus push`: send a run to a store, a bucket of S3 or a shared folder."""

from __future__ import annotations

import secrets

from rlzoo_plus.analysis.find_run import find_place, read_config
from rlzoo_plus.analysis.progress import about_run, read_report
from rlzoo_plus.analysis.shipped_runs import refuse_to_change
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.store_sender import last_state
from rlzoo_plus.runs.store_sync import name_in_store
from rlzoo_plus.store.contract import is_name, open_store
from rlzoo_plus.store.lease import RunLease, list_leases
from rlzoo_plus.store.mirror import RUNS, RunMirror
from rlzoo_plus.store.sync import RunSync


def main(arguments: list[str]) -> int:
    """Send what the store does not have yet, and print the run's URL."""
    parser = command_parser(
        "push",
        "Send a run to a store: logs, policies and checkpoints. Only what changed since the last "
        "push is sent. Repeat a push that broke off.",
        "latest s3://my-bucket/lab",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help=RUN_HELP)
    add("store", metavar="STORE", help="s3://bucket/prefix, or a folder that machines share")
    add("--name", metavar="FOLDER/NAME", help="the run's name there (its path below outputs/)")
    options = parser.parse_args(arguments)
    place = find_place(options.run)
    if place.is_bundle or place.is_copy:
        raise ConfigError(f"{printable(options.run)} is not a run directory. Name one.")
    # What was sent is noted in the run.
    refuse_to_change(place.path)
    run, config = RunDir(place.path), read_config(place)
    name = options.name or name_in_store(run.path, config.sweep)
    if not is_name(name) or "/" not in name:
        raise ConfigError(
            f"--name {printable(name)} must be FOLDER/NAME, without special characters."
        )
    # The store's other commands find runs by it.
    about = about_run(config)
    store = open_store(options.store)
    lease = RunLease(store, name, f"push-{secrets.token_hex(8)}")
    if not lease.claim(list_leases(store, name.rpartition("/")[0]), take_ended=True):
        raise ConfigError(
            f"{store.url}/{RUNS}/{name}: a worker trains this run now, or a push was killed in the "
            "last three minutes. Wait until that is over, or send this one under another --name."
        )
    # Its beats keep the lease, however long the push takes.
    sync = RunSync(
        store,
        lease,
        lambda check: RunMirror(store, name, run.path, check),
        lambda: {**about, **read_report(run)},
    )
    sync.start()
    state, reason = last_state(run)
    sync.finish(state, 0.0, reason=reason)
    if sync.error is not None:
        raise sync.error
    print(f"sent {sync.sent_objects} objects, {sync.sent_bytes / 1e6:.2f} MB")
    print(f"{store.url}/{RUNS}/{name}")
    return 0

"""`rlzoo-plus push`: send a run to a store, a bucket of S3 or a shared folder."""

from __future__ import annotations

import contextlib
import secrets

from rlzoo_plus.analysis.progress import about_run, read_report
from rlzoo_plus.artifacts.run_dir import FINISHED, OUTPUTS, RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.runs.open import find_place, read_config


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

    from rlzoo_plus.store.contract import is_name, open_store
    from rlzoo_plus.store.lease import FINISHED as ENDED
    from rlzoo_plus.store.lease import RELEASED, RunLease, list_leases
    from rlzoo_plus.store.mirror import RUNS, RunMirror

    run = RunDir(place.path)
    name = options.name or _name(run)
    if not is_name(name) or "/" not in name:
        raise ConfigError(
            f"--name {printable(name)} must be FOLDER/NAME, without special characters."
        )
    # The store's other commands find runs by it.
    about = about_run(read_config(place))
    store = open_store(options.store)
    lease = RunLease(store, name, f"push-{secrets.token_hex(8)}")
    if not lease.claim(list_leases(store, name.rpartition("/")[0]), take_ended=True):
        raise ConfigError(
            f"{store.url}/{RUNS}/{name}: a worker trains this run now, or a push was killed in the "
            "last three minutes. Wait until that is over, or send this one under another --name."
        )
    try:
        sent = RunMirror(store, name, run.path).push()
    except BaseException:
        # The next push need not wait until the lease expires.
        with contextlib.suppress(RunError):
            lease.beat(RELEASED)
        raise
    is_finished = run.read_status().get("state") == FINISHED
    lease.beat(ENDED if is_finished else RELEASED, step=sent.step, **about, **read_report(run))
    print(f"sent {sent.objects} objects, {sent.size / 1e6:.2f} MB")
    print(f"{store.url}/{RUNS}/{name}")
    return 0


def _name(run: RunDir) -> str:
    path, outputs = run.path.resolve(), OUTPUTS.resolve()
    root = outputs if path.is_relative_to(outputs) else path.parent.parent
    return path.relative_to(root).as_posix()

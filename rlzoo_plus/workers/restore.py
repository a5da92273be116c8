"""Brings a run to the newest state there is, in this directory or in a store, before it goes on."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlzoo_plus.artifacts.inside import check_inside, check_plain
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import RunError
from rlzoo_plus.runs.train_job import move_aside
from rlzoo_plus.store.contract import ArtifactStore, StoreError
from rlzoo_plus.store.lease import LeaseLostError, RunLease
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.pull import has_state, pull_run

log = logging.getLogger(__name__)


class LockedError(RunError):
    """Another process works in the directory."""


def restore_run(store: ArtifactStore, run: str, root: Path, path: Path) -> int | None:
    """Make a run directory hold the newest state of a run; nothing there means that it begins.

    A directory that nobody has overtaken stays. One that was overtaken is removed if the store has
    it, and else moved aside. `root` is a folder that the run directory is below.

    Returns:
        The step that the run goes on from, None if it begins.

    Raises:
        StoreError: A request failed.
        DamagedFolderError: A policy in the store is damaged.
        LockedError: Another process trains in the directory.
        OutsideError: A link leads out of the folder.
    """
    check_inside(root, path)
    here = RunDir(path)
    if path.is_dir():
        check_plain(path)
        with here.lock as lock:
            if not lock.acquire():
                raise LockedError(f"{path}: another process trains there")
            mirror = RunMirror(store, run, path)
            if mirror.is_ahead():
                mirror.forget_files()
                return max(here.checkpoints().steps(), default=None)
            if mirror.knows_copy():
                shutil.rmtree(path)
            else:
                move_aside(here)
    if not has_state(store, run):
        return None
    step = pull_run(store, run, path)
    if step is None:
        log.warning("%s: no checkpoint in the store is whole; it begins anew", run)
        shutil.rmtree(path)
    return step


@contextmanager
def beating(lease: RunLease, every_s: float) -> Iterator[None]:
    """Renew a lease, inside; failures are left to whoever beats it next."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(every_s):
            try:
                lease.beat()
            except LeaseLostError:
                return
            except StoreError as error:
                log.debug("%s", error)

    thread = threading.Thread(target=beat, name="beats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()

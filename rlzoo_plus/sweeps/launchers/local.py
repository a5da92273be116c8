"""Jobs in processes of this machine, forked from a server that has imported everything."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any

from rlzoo_plus.config.socket_paths import keep_socket_paths_short
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.processes import point_at_devnull, without_ctrl_c, without_main
from rlzoo_plus.sweeps.launchers.job_process import THREADS, run_worker
from rlzoo_plus.sweeps.launchers.launcher import JobSpec, LauncherOptions
from rlzoo_plus.sweeps.launchers.node import ProcessHandle


def start_server(preload: Sequence[str], hides: Callable[[str], bool] | None = None) -> None:
    """Start the server that jobs are forked from, unless it runs; return while it imports.

    `preload` are modules that the jobs find imported; `hides` says of a variable of the environment
    whether the jobs must not see it.
    """
    keep_socket_paths_short()
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    # It would unblock SIGTERM if it started inside.
    resource_tracker.ensure_running()
    with _environ_of_jobs(hides), without_ctrl_c(), _without_sigterm(), _without_output():
        forkserver.ensure_running()


def is_of_aws(name: str) -> bool:
    """Return whether a variable of the environment is AWS's: its settings, keys and tokens."""
    return name.startswith("AWS_")


class LocalLauncher:
    """Up to `slots` processes at once."""

    shows_output = False

    def __init__(
        self, slots: int, preload: Sequence[str] = (), hides: Callable[[str], bool] | None = None
    ) -> None:
        """Start the server that jobs are forked from.

        See `start_server`; `hides` has no effect on a server that runs already.
        """
        if not hasattr(os, "setsid"):
            raise ConfigError("infra=local needs Linux or macOS. Use infra=debug.")
        self.slots, self._hides = slots, hides
        start_server(preload, hides)

    @classmethod
    def from_options(cls, options: LauncherOptions) -> LocalLauncher:
        """Make a launcher whose jobs fill the cores of this machine."""
        return cls(options.slots, options.preload)

    def submit(self, spec: JobSpec) -> ProcessHandle:
        """Start a process for a job."""
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        # The server starts again if something has ended it.
        with _environ_of_jobs(self._hides), without_main():
            process = multiprocessing.get_context("forkserver").Process(
                target=run_worker, args=(spec.target, spec.data, str(spec.log)), name=spec.name
            )
            process.start()
        return ProcessHandle(process, spec.limits)

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until a process ends, or until the timeout."""
        connection.wait([handle.process.sentinel for handle in handles], timeout_s)


@contextlib.contextmanager
def _environ_of_jobs(hides: Callable[[str], bool] | None) -> Iterator[None]:
    """Start processes inside without the variables to hide; numerical libraries use one thread."""
    names = [] if hides is None else [name for name in os.environ if hides(name)]
    kept = {name: os.environ.pop(name) for name in names}
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
        os.environ.update(kept)


@contextlib.contextmanager
def _without_sigterm() -> Iterator[None]:
    """Block SIGTERM in a process that starts inside: one for the whole group is meant for the jobs.

    Each job unblocks it; without the server, nobody would know how they end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """Give a process that starts inside no output: readers of ours need not wait for its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        kept = [(number, os.dup(number)) for number in (1, 2)]
    except OSError:
        # This process has no output.
        yield
        return
    try:
        point_at_devnull(1, 2)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)

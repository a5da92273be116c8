"""Jobs in processes of this machine, forked from a server that has imported everything."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerProcess
from types import ModuleType

from rlzoo_plus.config.socket_paths import keep_socket_paths_short
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.handle import ProcessHandle
from rlzoo_plus.infra.job import JobSpec
from rlzoo_plus.infra.launcher import Handle, LauncherOptions
from rlzoo_plus.infra.stop_signals import HANGUP, give_back_signals
from rlzoo_plus.infra.worker import THREADS, run_worker


class LocalHandle(ProcessHandle):
    """A job in a process of the fork server."""

    def __init__(self, process: ForkServerProcess, spec: JobSpec) -> None:
        super().__init__(process, spec.limits)
        self.process = process


def start_server(preload: Sequence[str]) -> None:
    """Start the server that jobs are forked from, unless it runs; its imports go on meanwhile.

    Args:
        preload: Modules that the jobs find imported.
    """
    keep_socket_paths_short()
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    with _one_thread(), without_ctrl_c(), _without_output():
        forkserver.ensure_running()


class LocalLauncher:
    """Up to `slots` processes at once."""

    shows_output = False

    def __init__(self, slots: int, preload: Sequence[str] = ()) -> None:
        if not hasattr(os, "setsid"):
            raise ConfigError("infra=local needs Linux or macOS. Use infra=debug.")
        self.slots = slots
        self._context = multiprocessing.get_context("forkserver")
        start_server(preload)

    @classmethod
    def from_options(cls, options: LauncherOptions) -> LocalLauncher:
        """Make one; its jobs fill the cores of this machine."""
        return cls(options.slots, options.preload)

    def submit(self, spec: JobSpec) -> LocalHandle:
        """Start a process for a job."""
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with _one_thread(), without_main():
            process = self._context.Process(
                target=run_worker, args=(spec.target, spec.data, str(spec.log)), name=spec.name
            )
            process.start()
        return LocalHandle(process, spec)

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> None:
        """Sleep until a process ends, or for so long."""
        sentinels = [h.process.sentinel for h in handles if isinstance(h, LocalHandle)]
        if sentinels:
            connection.wait(sentinels, timeout_s)
        else:
            time.sleep(timeout_s)


@contextlib.contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Let what starts inside ignore what a terminal sends, which is for the controller."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT] if HANGUP is None else [signal.SIGINT, HANGUP]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        give_back_signals(before)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let what starts inside find one thread set for numerical libraries, if nothing is set."""
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Let a process that starts inside not run the user's script again.

    Each process of multiprocessing would import the main module of the one that started it, so
    that a script had to guard its lines with `if __name__ == "__main__"`. Jobs name what they call.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """Let what starts inside say nothing; whoever reads our output need not wait for its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        kept = [(number, os.dup(number)) for number in (1, 2)]
    except OSError:
        # There is no output.
        yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for number, _ in kept:
            os.dup2(nothing, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(nothing)

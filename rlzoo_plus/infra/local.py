"""Jobs in processes of this machine, forked from a server that has imported everything."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerProcess

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.infra.job import GIB, JobEnd, JobSpec
from rlzoo_plus.infra.launcher import Handle
from rlzoo_plus.infra.usage import session_memory_bytes
from rlzoo_plus.infra.worker import run_worker

# Time for an iteration and a checkpoint of a job that is over its time.
STOP_GRACE_S = 60.0
# torch is told its number of threads by each job; this is for the libraries that ask no one.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class LocalHandle:
    """A job in a process of its own, with its limits."""

    def __init__(self, process: ForkServerProcess, spec: JobSpec) -> None:
        self.process = process
        self.spec = spec
        self._started = time.monotonic()
        self._over_since: float | None = None
        self._limit: str | None = None

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it runs; end it if it is over a limit."""
        code = self.process.exitcode
        if code is None:
            self._check_limits()
            return None
        # What it has left behind, such as the processes of its environments.
        self._send(signal.SIGKILL, only_group=True)
        return JobEnd(code, self._limit)

    def stop(self) -> None:
        """Send SIGTERM: training writes a last checkpoint and ends."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        self._send(signal.SIGKILL)

    def _check_limits(self) -> None:
        now, limits = time.monotonic(), self.spec.limits
        if self._over_since is not None:
            if now - self._over_since > STOP_GRACE_S:
                self.kill()
            return
        if limits.time_s is not None and now - self._started > limits.time_s:
            self._over_since = now
            self._limit = f"longer than infra.time_limit_minutes={limits.time_s / 60:g}"
            self.stop()
        elif limits.memory_gib is not None and self.process.pid is not None:
            used = session_memory_bytes(self.process.pid) / GIB
            if used > limits.memory_gib:
                self._over_since = now
                self._limit = f"used {used:.2f} GiB, above infra.memory_gib={limits.memory_gib:g}"
                # To stop cleanly would take more memory.
                self.kill()

    def _send(self, number: int, *, only_group: bool = False) -> None:
        pid = self.process.pid
        if pid is None:
            return
        try:
            if number == signal.SIGKILL:
                os.killpg(pid, number)
                return
        except (ProcessLookupError, PermissionError):
            pass  # it has no group of its own yet, or nothing of it is left
        if not only_group and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class LocalLauncher:
    """Up to `slots` processes at once."""

    shows_output = False

    def __init__(self, slots: int, preload: Sequence[str] = ()) -> None:
        if not hasattr(os, "setsid"):
            raise ConfigError("infra=local needs Linux or macOS. Use infra=debug.")
        self.slots = slots
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        with _one_thread(), _without_ctrl_c():
            # Its imports go on while the caller prepares the jobs.
            forkserver.ensure_running()

    def submit(self, spec: JobSpec) -> LocalHandle:
        """Start a process for a job."""
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with _one_thread():
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
def _without_ctrl_c() -> Iterator[None]:
    """Let what starts inside ignore a Ctrl-C, which is for the controller, from its beginning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let what starts inside find one thread set for numerical libraries, if nothing is set."""
    missing = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)

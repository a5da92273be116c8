"""Jobs on the nodes of a Ray cluster, or of a Ray that is started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlzoo_plus.config.schema import NonNegativeFloat, Section
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.handle import ProcessHandle
from rlzoo_plus.infra.job import GIB, JobEnd, JobSpec
from rlzoo_plus.infra.launcher import Handle, LauncherOptions
from rlzoo_plus.infra.node import LOOK_S, STOPPED, end_of_record, make_ticket, note_in_log, spawn
from rlzoo_plus.infra.usage import cores

# Ray's own memory for objects, of which there are none here; less is refused.
_OBJECT_STORE_BYTES = 100 * 2**20
_KILL_S = 10.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A job whose process of Ray is gone shall end cleanly, as by SIGTERM.
    "RAY_kill_child_processes_on_worker_exit": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_session: weakref.ref[_Session] | None = None


class NodeJob:
    """Lives in a process of Ray on the job's node, and runs the job beside itself."""

    def __init__(self) -> None:
        self._handle: ProcessHandle | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def has_begun(self) -> bool:
        """Answer, which tells that there is a node for the job."""
        return True

    def run(self, ticket: dict[str, Any]) -> dict[str, Any]:
        """Run the job to its end; return `code` and `limit`."""
        with self._lock:
            if self._is_stopped:
                return {"code": STOPPED, "limit": None}
            try:
                self._handle = spawn(ticket)
            except OSError as error:
                note_in_log(ticket, f"cannot be started: {error}")
                return {"code": 1, "limit": f"cannot be started: {error}"}
        while True:
            with self._lock:
                end = self._handle.poll()
            if end is not None:
                return {"code": end.code, "limit": end.limit}
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """Stop the job cleanly."""
        with self._lock:
            self._is_stopped = True
            if self._handle is not None:
                self._handle.stop()

    def kill(self) -> None:
        """End the job and all its processes."""
        with self._lock:
            self._is_stopped = True
            if self._handle is not None:
                self._handle.kill()


class RaySettings(Section):
    """The keys of `infra=ray`; what they mean is in conf/infra/ray.yaml."""

    address: Annotated[str, Field(min_length=1)] | None = None
    gpus_per_job: NonNegativeFloat = 0.0


class RayLauncher:
    """Up to `slots` jobs at once on the nodes of Ray."""

    shows_output = False
    Settings = RaySettings

    def __init__(self, settings: RaySettings, slots: int | None, threads: int) -> None:
        """Connect to Ray, or start it.

        Args:
            settings: Where Ray is, and what a job needs.
            slots: Jobs at once; None to fill the cores of all nodes.
            threads: Cores of one job.

        Raises:
            ConfigError: Ray is not installed, or is not where it should be.
        """
        self.settings, self._threads = settings, max(1, threads)
        wanted = None if slots is None else slots * self._threads
        self._session = _join(settings.address, wanted)
        total = int(self._session.total("CPU"))
        self.slots = slots or max(1, total // self._threads)

    @classmethod
    def from_options(cls, options: LauncherOptions) -> RayLauncher:
        """Make one; see the constructor."""
        return cls(options.settings, options.workers, options.threads_per_job)

    def submit(self, spec: JobSpec) -> RayHandle:
        """Give a job to Ray.

        Raises:
            ConfigError: No node is large enough for it.
        """
        needs: dict[str, float] = {"CPU": self._threads, "GPU": self.settings.gpus_per_job}
        if self.settings.address is not None and spec.limits.memory_gib is not None:
            needs["memory"] = spec.limits.memory_gib * GIB
        self._session.check_fits(spec.name, needs)
        return RayHandle(self._session, spec, needs)

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> None:
        """Sleep until a job ends, or for so long."""
        mine = [handle.result for handle in handles if isinstance(handle, RayHandle)]
        if mine:
            self._session.ray.wait(mine, num_returns=1, timeout=timeout_s)
        else:
            time.sleep(timeout_s)


class RayHandle:
    """A job that Ray has a node for, or looks for one."""

    def __init__(self, session: _Session, spec: JobSpec, needs: dict[str, float]) -> None:
        self.spec = spec
        self._session, self._ray = session, session.ray
        options = {
            "num_cpus": needs["CPU"],
            "num_gpus": needs["GPU"],
            # One thread runs the job, the others hear what is asked for.
            "max_concurrency": 4,
            "memory": needs.get("memory"),
        }
        self._actor = session.ray.remote(NodeJob).options(**options).remote()
        self._begun = self._actor.has_begun.remote()
        self.result = self._actor.run.remote(make_ticket(spec))
        self._asked: str | None = None
        self._end: JobEnd | None = None

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it waits or runs; its node enforces its limits."""
        if self._end is None and self._is_ready(self.result):
            self._end = self._read_end()
            # Its process of Ray is of no more use.
            self._ray.kill(self._actor)
        return self._end

    def stop(self) -> None:
        """Let its node send SIGTERM; one that waits is taken back."""
        self._asked = self._asked or "stop"
        if self._is_ready(self._begun):
            self._actor.stop.remote()
        else:
            self._ray.kill(self._actor)

    def kill(self) -> None:
        """Let its node kill all its processes."""
        self._asked = "kill"
        if self._is_ready(self._begun):
            self._ray.wait([self._actor.kill.remote()], timeout=_KILL_S)
        else:
            self._ray.kill(self._actor)

    def _is_ready(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _read_end(self) -> JobEnd:
        try:
            end = end_of_record(self._ray.get(self.result))
        except self._ray.exceptions.RayError as error:
            if self._asked is not None:
                return JobEnd(STOPPED if self._asked == "stop" else -signal.SIGKILL)
            why = str(error).strip().splitlines() or [type(error).__name__]
            return JobEnd(-signal.SIGKILL, f"Ray has lost it; it can go on: {why[0]}")
        return end or JobEnd(1, "Ray has returned no end")


class _Session:
    """A connection to Ray; what was started here stops with the last one who needs it."""

    def __init__(self, address: str | None, wanted: int | None) -> None:
        self.ray = _import_ray()
        self.address = address
        own = {
            "num_cpus": max(wanted or 0, cores()),
            "object_store_memory": _OBJECT_STORE_BYTES,
            # No one else needs to reach it.
            "_node_ip_address": "127.0.0.1",
        }
        try:
            with _signals_kept(), _without_warnings():
                self.ray.init(
                    address=address or "local",
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **({} if address else own),
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())[:300]
            raise ConfigError(f"infra.address={address}: there is no Ray: {said}") from error
        self._finalizer = weakref.finalize(self, self.ray.shutdown)

    def total(self, resource: str) -> float:
        """Return how much there is of a resource on all nodes."""
        return float(self.ray.cluster_resources().get(resource, 0.0))

    def check_fits(self, name: str, needs: dict[str, float]) -> None:
        """Raise ConfigError if no node has what a job needs: it would wait for ever."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if any(all(node.get(k, 0.0) >= v for k, v in needs.items()) for node in nodes):
            return
        asked = ", ".join(f"{key} {value:g}" for key, value in needs.items() if value)
        raise ConfigError(
            f"{name}: no node of Ray has what it needs ({asked}). Lower num_threads, "
            "infra.gpus_per_job or infra.memory_gib."
        )


def _join(address: str | None, wanted: int | None) -> _Session:
    """Return the session of this process, or begin one: Ray allows one at a time."""
    global _session
    session = _session() if _session is not None else None
    if session is None:
        session = _Session(address, wanted)
        _session = weakref.ref(session)
    elif session.address != address:
        raise ConfigError(
            f"infra.address={address}: this process uses Ray at {session.address} already."
        )
    return session


def _import_ray() -> Any:
    # Ray reads these when it is imported, and gives them to what it starts.
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "infra=ray needs Ray. Install it: pip install 'rlzoo-plus[ray]'."
        ) from None
    return ray


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Let Ray leave the handlers of this process alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

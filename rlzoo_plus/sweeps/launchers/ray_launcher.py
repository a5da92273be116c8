"""Jobs on the nodes of a Ray cluster, or of a Ray that is started on this machine."""

from __future__ import annotations

import logging
import os
import signal
import time
import weakref
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rlzoo_plus.config.section import NonNegativeFloat, Section
from rlzoo_plus.errors import EXIT_SIGTERM, ConfigError
from rlzoo_plus.processes import signal_handlers
from rlzoo_plus.sweeps.launchers.launcher import GIB, JobEnd, JobSpec, LauncherOptions
from rlzoo_plus.sweeps.launchers.node import KILL, STOP, make_ticket, supervise
from rlzoo_plus.sweeps.launchers.usage import cores

# Ray's memory for objects, which is not used here; Ray accepts no less.
_OBJECT_STORE_BYTES = 100 * 2**20
_KILL_S = 10.0
_ENVIRON = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A job whose Ray process is gone ends cleanly by itself, as by SIGTERM.
    "RAY_kill_child_processes_on_worker_exit": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_session: weakref.ref[_Session] | None = None


class NodeJob:
    """The actor that runs a job in a process beside it, on the job's node."""

    def __init__(self) -> None:
        self._request: str | None = None

    def has_begun(self) -> bool:
        """Answer, which tells that there is a node for the job."""
        return True

    def run(self, ticket: dict[str, Any]) -> JobEnd:
        """Run the job to its end."""
        return supervise(ticket, lambda: self._request)

    def ask(self, request: str) -> None:
        """Stop or kill the job."""
        self._request = request


class RaySettings(Section):
    """The keys of `infra=ray`; conf/infra/ray.yaml explains them."""

    address: Annotated[str, Field(min_length=1)] | None = None
    gpus_per_job: NonNegativeFloat = 0.0


class RayLauncher:
    """Up to `slots` jobs at once on the nodes of Ray."""

    shows_output = False
    Settings = RaySettings

    def __init__(self, options: LauncherOptions) -> None:
        self.settings: RaySettings = options.settings
        self._threads = max(1, options.threads_per_job)
        wanted = None if options.workers is None else options.workers * self._threads
        self._session = _join(self.settings.address, wanted)
        cpus = int(self._session.ray.cluster_resources().get("CPU", 0.0))
        self.slots = options.workers or max(1, cpus // self._threads)

    @classmethod
    def from_options(cls, options: LauncherOptions) -> RayLauncher:
        """Connect to Ray, or start it; the jobs fill the cores of all nodes."""
        return cls(options)

    def submit(self, spec: JobSpec) -> RayHandle:
        """Give a job to Ray."""
        needs: dict[str, float] = {"CPU": self._threads, "GPU": self.settings.gpus_per_job}
        if self.settings.address is not None and spec.limits.memory_gib is not None:
            needs["memory"] = spec.limits.memory_gib * GIB
        nodes = [node["Resources"] for node in self._session.ray.nodes() if node["Alive"]]
        if not any(all(node.get(k, 0.0) >= v for k, v in needs.items()) for node in nodes):
            asked = ", ".join(f"{key} {value:g}" for key, value in needs.items() if value)
            raise ConfigError(
                f"{spec.name}: no node of Ray has what it needs ({asked}). Lower num_threads, "
                "infra.gpus_per_job or infra.memory_gib."
            )
        return RayHandle(self._session, spec, needs)

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until a job ends, or until the timeout."""
        if handles:
            results = [handle.result for handle in handles]
            self._session.ray.wait(results, num_returns=1, timeout=timeout_s)
        else:
            time.sleep(timeout_s)


class RayHandle:
    """A job that runs on a node of Ray, or waits for one."""

    def __init__(self, session: _Session, spec: JobSpec, needs: dict[str, float]) -> None:
        self.spec = spec
        self._session, self._ray = session, session.ray
        options = {
            "num_cpus": needs["CPU"],
            "num_gpus": needs["GPU"],
            # One thread runs the job, the others receive requests.
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
            # The actor is no longer needed.
            self._ray.kill(self._actor)
        return self._end

    def stop(self) -> None:
        """Let its node send SIGTERM; a waiting job is withdrawn."""
        self._ask(self._asked or STOP)

    def kill(self) -> None:
        """Let its node kill all its processes."""
        if self._ask(KILL):
            self._ray.wait([self.result], timeout=_KILL_S)

    def _ask(self, request: str) -> bool:
        """Pass on a request; return False if there is no node to receive it."""
        self._asked = request
        has_begun = self._is_ready(self._begun)
        if has_begun:
            self._actor.ask.remote(request)
        else:
            self._ray.kill(self._actor)
        return has_begun

    def _is_ready(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _read_end(self) -> JobEnd:
        try:
            end: JobEnd = self._ray.get(self.result)
        except self._ray.exceptions.RayError as error:
            if self._asked is not None:
                return JobEnd(EXIT_SIGTERM if self._asked == STOP else -signal.SIGKILL)
            reason = str(error).strip().splitlines() or [type(error).__name__]
            return JobEnd(-signal.SIGKILL, f"Ray lost it; it can go on: {reason[0]}")
        return end


class _Session:
    """A connection to Ray; a Ray that was started here stops with its last user."""

    def __init__(self, address: str | None, wanted: int | None) -> None:
        # Ray reads these when it is imported, and passes them to its processes.
        os.environ.update({**_ENVIRON, **os.environ})
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "infra=ray needs Ray. Install it: pip install 'rlzoo-plus[ray]'."
            ) from None
        self.ray: Any = ray
        self.address = address
        own: dict[str, Any] = {
            "num_cpus": max(wanted or 0, cores()),
            "object_store_memory": _OBJECT_STORE_BYTES,
            # Reachable from this machine only.
            "_node_ip_address": "127.0.0.1",
        }
        # Ray would replace the handlers of this process.
        kept: dict[int, Any] = {
            number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            with signal_handlers(kept):
                ray.init(
                    address=address or "local",
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **({} if address else own),
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"infra.address={address}: there is no Ray: {reason}") from error
        self._finalizer = weakref.finalize(self, ray.shutdown)


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

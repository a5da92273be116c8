"""The protocol of launchers, and the launchers by the name that `infra=...` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlzoo_plus.config.catalog import LAUNCHERS
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.config.suggest import unknown_name
from rlzoo_plus.infra.job import JobEnd, JobSpec

# Jobs in the queue of a cluster at once, if nothing is said.
CLUSTER_WORKERS = 16


class Handle(Protocol):
    """A job that was submitted."""

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it runs; enforces its limits."""

    def stop(self) -> None:
        """Ask it to end cleanly, with a checkpoint; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


class Launcher(Protocol):
    """Runs jobs somewhere; used by one thread.

    Attributes:
        slots: Number of jobs that may run at once.
        shows_output: Whether the jobs' output comes to this terminal.
    """

    slots: int
    shows_output: bool

    def submit(self, spec: JobSpec) -> Handle:
        """Start a job."""

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> None:
        """Sleep until one of the jobs has ended, or for so long."""


def make_launcher(infra: InfraConfig, threads_per_job: int, preload: Sequence[str]) -> Launcher:
    """Return the launcher that a configuration asks for.

    Args:
        infra: The configuration.
        threads_per_job: Cores that one job keeps busy.
        preload: Modules that the processes of jobs find imported.

    Raises:
        ConfigError: There is none of that name, or it cannot do what is asked.
    """
    if infra.name == "debug":
        from rlzoo_plus.infra.debug import DebugLauncher

        if infra.memory_gib is not None or infra.time_limit_minutes is not None:
            raise ConfigError(
                "infra=debug runs jobs in this process, which no limit can end. Leave out "
                "infra.memory_gib and infra.time_limit_minutes, or use infra=local."
            )
        return DebugLauncher()
    if infra.name == "local":
        from rlzoo_plus.infra.local import LocalLauncher

        return LocalLauncher(workers(infra, threads_per_job), preload)
    if infra.name == "slurm":
        from rlzoo_plus.infra.slurm import SlurmLauncher

        many = infra.cluster == "slurm" and infra.workers == "auto"
        slots = CLUSTER_WORKERS if many else workers(infra, threads_per_job)
        return SlurmLauncher(infra, slots, threads_per_job)
    if infra.name == "ray":
        from rlzoo_plus.infra.ray_launcher import RayLauncher

        own = None if infra.workers == "auto" else int(infra.workers)
        return RayLauncher(infra, own, threads_per_job)
    raise ConfigError(unknown_name("infra.name", infra.name, LAUNCHERS))


def workers(infra: InfraConfig, threads_per_job: int) -> int:
    """Return the number of jobs at once; `auto` fills the cores, and is at least 1."""
    from rlzoo_plus.infra.usage import cores

    if infra.workers != "auto":
        return int(infra.workers)
    return max(1, cores() // max(1, threads_per_job))

"""The protocol of launchers, and how one is made from a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlzoo_plus.config.catalog import LAUNCHERS
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.infra.job import JobEnd, JobSpec, Limits


class Handle(Protocol):
    """A job that was submitted."""

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it runs; enforces its limits."""

    def stop(self) -> None:
        """Ask it to end cleanly, with a checkpoint; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


@dataclass(frozen=True)
class LauncherOptions:
    """What a launcher is made from.

    Attributes:
        settings: Its own, an instance of its class's `Settings`.
        workers: Jobs at once; None for as many as fit.
        threads_per_job: Cores that one job keeps busy.
        preload: Modules that processes on this machine may find imported.
        limits: What each job may use.
    """

    settings: Any
    workers: int | None = None
    threads_per_job: int = 1
    preload: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def slots(self) -> int:
        """Jobs at once if all of them run on this machine."""
        return _slots(self.workers, self.threads_per_job)


class Launcher(Protocol):
    """Runs jobs somewhere; used by one thread.

    One of the user's own is a class with these methods, anywhere: `infra.name=my_module.Mine`. Its
    keys below `infra` are the fields of a pydantic model, its attribute `Settings`.

    Attributes:
        slots: Number of jobs that may run at once.
        shows_output: Whether the jobs' output comes to this terminal.
    """

    slots: int
    shows_output: bool

    @classmethod
    def from_options(cls, options: LauncherOptions) -> Launcher:
        """Make one.

        Raises:
            ConfigError: It cannot do what is asked.
        """

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
    minutes = infra.time_limit_minutes
    options = LauncherOptions(
        settings=settings_of(infra),
        workers=None if infra.workers == "auto" else infra.workers,
        threads_per_job=threads_per_job,
        preload=tuple(preload),
        limits=Limits(infra.memory_gib, None if minutes is None else 60.0 * minutes),
    )
    launcher: type[Launcher] = LAUNCHERS.load(infra.name)
    return launcher.from_options(options)


def workers(infra: InfraConfig, threads_per_job: int) -> int:
    """Return the number of jobs at once; `auto` fills the cores, and is at least 1."""
    return _slots(None if infra.workers == "auto" else infra.workers, threads_per_job)


def _slots(wanted: int | None, threads_per_job: int) -> int:
    from rlzoo_plus.infra.usage import cores

    return wanted or max(1, cores() // max(1, threads_per_job))

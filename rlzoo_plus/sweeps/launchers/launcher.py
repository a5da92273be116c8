"""The contract of launchers: what a launcher is given, what it returns, and how one is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from rlzoo_plus.config.catalog import LAUNCHERS
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.sweeps.launchers import usage

GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """What a job may use; None for no limit."""

    memory_gib: float | None = None  # Resident memory of all its processes together [GiB]
    time_s: float | None = None  # Wall-clock time of one attempt [s]

    @classmethod
    def of(cls, infra: InfraConfig) -> Limits:
        """Return the limits that a configuration sets."""
        minutes = infra.time_limit_minutes
        return cls(infra.memory_gib, None if minutes is None else 60.0 * minutes)


@dataclass(frozen=True)
class JobSpec:
    """One job, as plain data."""

    name: str  # Its name in messages
    target: str  # `module:function`; the function takes `data` and returns an exit code
    data: dict[str, Any]  # The function's argument: JSON values, as for another machine
    log: Path  # The file that its output is appended to
    limits: Limits = field(default_factory=Limits)  # What it may use
    # Whether it trains what `data` has as `config` and `command`: workers that take runs from a
    # store train it, without `target`.
    is_run: bool = False


@dataclass(frozen=True)
class JobEnd:
    """How a job ended."""

    code: int  # Its exit code; minus the number of the signal that killed it
    # The limit or the cluster that ended it, as a sentence; None if it ended by itself or by a
    # signal.
    limit: str | None = None


class Handle(Protocol):
    """A submitted job."""

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it waits or runs; enforces its limits."""

    def stop(self) -> None:
        """Ask it to end cleanly, with a checkpoint; returns at once."""

    def kill(self) -> None:
        """End it and all its processes now."""


@dataclass(frozen=True)
class LauncherOptions:
    """What a launcher is made from."""

    settings: Any  # Its own keys, an instance of its class's `Settings`
    workers: int | None = None  # Number of jobs at once; None for as many as fit
    threads_per_job: int = 1  # Cores that one job keeps busy
    preload: tuple[str, ...] = ()  # Modules that jobs on this machine may find imported
    limits: Limits = field(default_factory=Limits)  # What each job may use
    store: str | None = None  # Where runs are kept beyond this machine, None for nowhere
    sweep: str | None = None  # Name of the sweep or study that the jobs are of, if any

    @property
    def slots(self) -> int:
        """Number of jobs at once if all of them run on this machine."""
        return self.workers or max(1, usage.cores() // max(1, self.threads_per_job))


class Launcher(Protocol):
    """Runs jobs somewhere; used by one thread.

    A launcher of your own is a class with these methods, anywhere: `infra.name=my_module.Mine`. Its
    keys below `infra` are the fields of a pydantic model, its attribute `Settings`.

    Attributes:
        slots: Number of jobs that may run at once.
        shows_output: Whether the jobs print to this terminal.
    """

    slots: int
    shows_output: bool

    @classmethod
    def from_options(cls, options: LauncherOptions) -> Launcher:
        """Make a launcher.

        Raises:
            ConfigError: It does not support an option, or something is not installed.
        """

    def submit(self, spec: JobSpec) -> Handle:
        """Start a job, or queue it.

        Raises:
            ConfigError: It cannot be started.
        """

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until one of these jobs, all submitted here, has ended, or until the timeout."""


def make_launcher(
    infra: InfraConfig,
    threads_per_job: int,
    preload: Sequence[str],
    *,
    store: str | None = None,
    sweep: str | None = None,
) -> Launcher:
    """Return the launcher that a configuration asks for.

    The other arguments are those of `LauncherOptions`.

    Raises:
        ConfigError: There is none of that name, or it does not support an option.
    """
    options = LauncherOptions(
        settings=settings_of(infra),
        workers=None if infra.workers == "auto" else infra.workers,
        threads_per_job=threads_per_job,
        preload=tuple(preload),
        limits=Limits.of(infra),
        store=store,
        sweep=sweep,
    )
    launcher: type[Launcher] = LAUNCHERS.load(infra.name)
    return launcher.from_options(options)


def workers(infra: InfraConfig, threads_per_job: int) -> int:
    """Return the number of jobs at once on this machine; `auto` fills the cores."""
    wanted = None if infra.workers == "auto" else infra.workers
    return LauncherOptions(None, wanted, threads_per_job).slots


def load_target(path: str) -> Callable[[dict[str, Any]], int]:
    """Import the function that a job's `target` names."""
    module, _, name = path.partition(":")
    return cast("Callable[[dict[str, Any]], int]", getattr(importlib.import_module(module), name))

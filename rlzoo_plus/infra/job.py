"""What a launcher is given, and what it tells when a job has ended."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

GIB = 2**30
# What a job returns that failed, that ended early because it was asked to, and whose directory
# another process trains in; what a command or a job returns that a signal has stopped.
EXIT_FAILED, EXIT_ENDED, EXIT_BUSY = 1, 74, 73
EXIT_SIGINT, EXIT_SIGTERM = 130, 75


@dataclass(frozen=True)
class Limits:
    """What a job may use; None for no limit.

    Attributes:
        memory_gib: Resident memory of all its processes together [GiB].
        time_s: Wall-clock time of one attempt [s].
    """

    memory_gib: float | None = None
    time_s: float | None = None


@dataclass(frozen=True)
class JobSpec:
    """One job, as plain data.

    Attributes:
        name: What it is called in messages.
        target: `module:function`; the function takes `data` and returns an exit code.
        data: What the function is given: what JSON can hold, as it may go to another machine.
        log: The file that its output is appended to.
        limits: What it may use.
    """

    name: str
    target: str
    data: dict[str, Any]
    log: Path
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Attributes:
        code: Its exit code; minus the number of the signal that killed it.
        limit: What ended it from outside, a limit or a cluster, as a sentence; None if it ended by
            itself or by a signal.
    """

    code: int
    limit: str | None = None


def load_target(path: str) -> Callable[[dict[str, Any]], int]:
    """Import the function that a job's `target` names."""
    module, _, name = path.partition(":")
    return cast("Callable[[dict[str, Any]], int]", getattr(importlib.import_module(module), name))

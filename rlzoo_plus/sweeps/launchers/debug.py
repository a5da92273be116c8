"""Jobs one after the other in this process, for a debugger; they print to the terminal."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, ConfigError
from rlzoo_plus.sweeps.launchers.launcher import (
    JobEnd,
    JobSpec,
    LauncherOptions,
    Limits,
    load_target,
)


@dataclass(frozen=True)
class DebugHandle:
    """A job that ran already."""

    end: JobEnd

    def poll(self) -> JobEnd:
        """Return how it ended."""
        return self.end

    def stop(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""


class DebugLauncher:
    """Runs a job when it is submitted."""

    slots = 1
    shows_output = True

    @classmethod
    def from_options(cls, options: LauncherOptions) -> DebugLauncher:
        """Make a launcher."""
        if options.limits != Limits():
            raise ConfigError(
                "infra=debug runs jobs in this process, which no limit can end. Leave out "
                "infra.memory_gib and infra.time_limit_minutes, or use infra=local."
            )
        return cls()

    def submit(self, spec: JobSpec) -> DebugHandle:
        """Run a job to its end; print what it raises."""
        try:
            code = load_target(spec.target)(spec.data)
        except Exception:
            traceback.print_exc()
            code = EXIT_FAILED
        # A signal that stopped the training is meant for all jobs.
        if code in (EXIT_SIGINT, EXIT_SIGTERM):
            os.kill(os.getpid(), signal.SIGINT if code == EXIT_SIGINT else signal.SIGTERM)
        return DebugHandle(JobEnd(code))

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until the timeout: no job is running."""
        time.sleep(timeout_s)

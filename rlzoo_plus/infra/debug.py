"""Jobs one after the other in this process, for a debugger; their output stays on the terminal."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Sequence

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.job import JobEnd, JobSpec, Limits, load_target
from rlzoo_plus.infra.launcher import Handle, LauncherOptions

# Exit codes of a training that a signal has stopped.
_STOPPED = {130: signal.SIGINT, 75: signal.SIGTERM}


class DebugHandle:
    """A job that has run already."""

    def __init__(self, end: JobEnd) -> None:
        self._end = end

    def poll(self) -> JobEnd | None:
        """Return how it ended."""
        return self._end

    def stop(self) -> None:
        """Nothing is left to stop."""

    def kill(self) -> None:
        """Nothing is left to kill."""


class DebugLauncher:
    """Runs a job when it is submitted."""

    slots = 1
    shows_output = True

    @classmethod
    def from_options(cls, options: LauncherOptions) -> DebugLauncher:
        """Make one.

        Raises:
            ConfigError: Jobs shall have limits.
        """
        if options.limits != Limits():
            raise ConfigError(
                "infra=debug runs jobs in this process, which no limit can end. Leave out "
                "infra.memory_gib and infra.time_limit_minutes, or use infra=local."
            )
        return cls()

    def submit(self, spec: JobSpec) -> DebugHandle:
        """Run a job to its end; what it raises is shown, and is its own matter."""
        try:
            code = load_target(spec.target)(spec.data)
        except Exception:
            traceback.print_exc()
            code = 1
        if code in _STOPPED:
            # The signal was taken by the training, and is meant for all jobs.
            os.kill(os.getpid(), _STOPPED[code])
        return DebugHandle(JobEnd(code))

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> None:
        """Return at once: nothing runs beside this."""

"""A launcher: the jobs of a sweep at a low priority, so that the machine stays usable beside them.

Use, in this folder:

    rlzoo-plus train -m seed=1,2,3 infra.name=nice_launcher.NiceLauncher infra.nice=15
"""

import os
from collections.abc import Sequence

from pydantic import BaseModel, Field

from rlzoo_plus.sweeps.launchers.launcher import JobSpec, LauncherOptions
from rlzoo_plus.sweeps.launchers.node import ProcessHandle, make_ticket, sleep_until, spawn


class NiceLauncher:
    """Up to `slots` processes of this machine at once, all of low priority."""

    shows_output = False

    class Settings(BaseModel):
        """Its keys below `infra`."""

        nice: int = Field(default=10, ge=0, le=19)  # 19: only when nothing else wants to run

    def __init__(self, slots: int, settings: Settings) -> None:
        self.slots = slots
        self.settings = settings

    @classmethod
    def from_options(cls, options: LauncherOptions) -> "NiceLauncher":
        """Make one; `slots` is `infra.workers`, or what the cores of this machine hold."""
        return cls(options.slots, options.settings)

    def submit(self, spec: JobSpec) -> ProcessHandle:
        """Start a process; its handle stops it, kills it and enforces its limits."""
        handle = spawn(make_ticket(spec))
        os.setpriority(os.PRIO_PROCESS, handle.pid, self.settings.nice)
        return handle

    def wait(self, handles: Sequence[ProcessHandle], timeout_s: float) -> None:
        """Sleep until one of the jobs has ended, or for so long."""
        sleep_until(lambda: any(handle.poll() is not None for handle in handles), timeout_s)

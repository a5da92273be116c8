"""A run that a worker has taken, and what ends its training before its time."""

from __future__ import annotations

from dataclasses import dataclass

from rlzoo_plus.store.lease import KILL, STOP, RunLease
from rlzoo_plus.store.sync import RunSync
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.workers.task import Task

# Of the time that a machine is there after its notice, what the last push needs [s].
_PUSH_LEFT_S = 20.0


@dataclass(eq=False)
class Taken:
    """A run that a worker has the lease of."""

    task: Task
    lease: RunLease  # its lease
    sync: RunSync | None = None  # sends it while it trains, None before
    asked: str | None = None  # what its process was told to do last, None if nothing
    is_ending: bool = False  # whether it needs no slot any more

    def wanted(self, left_s: float) -> str | None:
        """Return what its process must be told, None if it may go on.

        Args:
            left_s: How long the machine is there still [s].
        """
        account, sync = self.lease.account, self.sync
        if (sync is not None and sync.is_lost) or account.must_kill or left_s < _PUSH_LEFT_S:
            return KILL
        request = None if sync is None else sync.request
        return (request or {}).get("ask") or (STOP if account.must_stop else None)

    def ends_by_budget(self, end: JobEnd) -> bool:
        """Return whether its process ended as its share is spent."""
        ended_on_request = end.limit is None and end.code not in (1, 2)
        return self.asked is not None and self.lease.account.must_stop and ended_on_request

"""Jobs on a SLURM cluster, submitted by submitit; they end through files on the shared disk."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra import slurm_node
from rlzoo_plus.infra.job import JobEnd, JobSpec
from rlzoo_plus.infra.launcher import Handle, LauncherOptions
from rlzoo_plus.infra.local import without_ctrl_c
from rlzoo_plus.infra.node import STOPPED, end_of_record, make_ticket, note_in_log, sleep_until
from rlzoo_plus.infra.slurm_clusters import Cluster, Slurm, SlurmSettings, ThisMachine

# Jobs in the queue at once, if nothing is said.
CLUSTER_WORKERS = 16
_TAIL_CHARACTERS = 4000
# How old may be what the cluster says of a job, and of one that was asked to end.
_NEWS_S, _ASKED_NEWS_S = 20.0, 3.0
# Where a job that was asked to end has left no word, there is less to wait for.
_ASKED_GRACE_S = 5.0
# Time for a node to hear of a kill through the shared disk.
_KILL_PATIENCE_S = 30.0


class SlurmLauncher:
    """Up to `slots` jobs in the queue at once."""

    shows_output = False

    Settings = SlurmSettings

    def __init__(self, settings: SlurmSettings, slots: int, threads: int) -> None:
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise ConfigError(
                "infra=slurm needs submitit. Install it: pip install 'rlzoo-plus[slurm]'."
            ) from None
        self.slots = slots
        self.settings = settings
        self.folder = Path(settings.folder).expanduser().absolute()
        self.cluster: Cluster = ThisMachine() if settings.cluster == "local" else Slurm(threads)

    @classmethod
    def from_options(cls, options: LauncherOptions) -> SlurmLauncher:
        """Make one.

        Raises:
            ConfigError: submitit or SLURM's commands are missing.
        """
        many = options.settings.cluster == "slurm" and options.workers is None
        slots = CLUSTER_WORKERS if many else options.slots
        return cls(options.settings, slots, options.threads_per_job)

    def submit(self, spec: JobSpec) -> SlurmHandle:
        """Put a job into the queue.

        Raises:
            ConfigError: SLURM does not take it.
        """
        return SlurmHandle(self, spec)

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> None:
        """Sleep until a job ends, or for so long."""
        mine = [handle for handle in handles if isinstance(handle, SlurmHandle)]
        sleep_until(lambda: any(handle.has_ended() for handle in mine), timeout_s)


class SlurmHandle:
    """A job in the queue or on a node, and the folder through which it is spoken to."""

    def __init__(self, launcher: SlurmLauncher, spec: JobSpec) -> None:
        self.spec = spec
        self._launcher, self._cluster = launcher, launcher.cluster
        self._again = launcher.settings.resubmit
        self._asked: str | None = None
        self._end: JobEnd | None = None
        self._look_at = 0.0
        self._gone_since: float | None = None
        self._kill_at: float | None = None
        self._ticket = make_ticket(spec)
        self._submit()

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it waits or runs; its node enforces its limits."""
        if self._end is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._cluster.look_s
            self._look()
        return self._end

    def has_ended(self) -> bool:
        """Tell whether it has ended."""
        return self.poll() is not None

    def stop(self) -> None:
        """Ask the process beside it to stop it; one that waits leaves the queue."""
        self._ask(slurm_node.STOP)

    def kill(self) -> None:
        """End it and all its processes as soon as its node hears of it."""
        self._ask(slurm_node.KILL)

    def _submit(self) -> None:
        parent = self._launcher.folder
        parent.mkdir(parents=True, exist_ok=True)
        # Of our own making and for us alone: submitit unpickles what it finds there.
        self.folder = Path(tempfile.mkdtemp(prefix="job-", dir=parent))
        write_json(self.folder / slurm_node.TICKET, self._ticket)
        from submitit.helpers import clean_env

        executor = self._cluster.make_executor(self._launcher.settings, self.spec, self.folder)
        try:
            # Without what belongs to a job of the cluster that this runs in itself.
            with without_ctrl_c(), clean_env():
                self.job = executor.submit(slurm_node.run_job, str(self.folder))
            self._submitted = time.monotonic()
        except RuntimeError as error:
            self._clean_up()
            said = " ".join(str(error).split())[-500:]
            raise ConfigError(f"SLURM does not take {self.spec.name}: {said}") from error

    def _ask(self, request: str) -> None:
        if self._end is not None or self._asked == slurm_node.KILL or self._asked == request:
            return
        self._asked = request
        with contextlib.suppress(OSError):
            write_atomic(self.folder / slurm_node.REQUEST, request + "\n")
        self._cluster.signal(self.job)
        if request == slurm_node.KILL:
            self._kill_at = time.monotonic() + _KILL_PATIENCE_S

    def _look(self) -> None:
        try:
            record = json.loads((self.folder / slurm_node.END).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            record = self._record_if_gone()
        end = end_of_record(record)
        if record is None or end is None:
            return
        by_cluster = record.get("cluster") if self._asked is None else None
        if by_cluster and self._again > 0:
            self._again -= 1
            self._gone_since = None
            note_in_log(self._ticket, f"{by_cluster}; submitted again")
            self._clean_up()
            self._submit()
            return
        self._end = JobEnd(end.code, end.limit or (str(by_cluster) if by_cluster else None))
        self._clean_up()

    def _record_if_gone(self) -> dict[str, Any] | None:
        """Return the end of a job that has written none, once it is certain."""
        now = time.monotonic()
        news_s = _NEWS_S if self._asked is None else _ASKED_NEWS_S
        if not self._cluster.is_gone(self.job, max(self._submitted, now - news_s)):
            self._gone_since = None
            if self._kill_at is not None and now > self._kill_at:
                self._kill_at = None
                self._cluster.end(self.job)
            return None
        self._gone_since = self._gone_since or now
        longest = self._cluster.grace_s if self._asked is None else _ASKED_GRACE_S
        if now - self._gone_since < min(longest, self._cluster.grace_s):
            return None
        if self._asked is None:
            self._keep_last_words()
        code = STOPPED if self._asked == slurm_node.STOP else -9
        why = f"the cluster's job {self.job.job_id} is gone; it can go on"
        return {"code": code, "limit": None, "cluster": None if self._asked else why}

    def _keep_last_words(self) -> None:
        with contextlib.suppress(OSError):
            text = self.job.paths.stdout.read_text(encoding="utf-8", errors="replace")
            note_in_log(self._ticket, text[-_TAIL_CHARACTERS:])

    def _clean_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._launcher.folder.rmdir()

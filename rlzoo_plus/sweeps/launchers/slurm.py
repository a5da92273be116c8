"""Jobs on a SLURM cluster, submitted by submitit; they end through files on the shared disk."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import Field

from rlzoo_plus.artifacts.atomic import write_atomic, write_json
from rlzoo_plus.config.section import Count, NonNegative, PositiveFloat, Section
from rlzoo_plus.errors import EXIT_SIGINT, EXIT_SIGTERM, ConfigError
from rlzoo_plus.processes import signal_handlers, without_ctrl_c
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, LauncherOptions
from rlzoo_plus.sweeps.launchers.node import (
    KILL,
    STOP,
    make_ticket,
    note_in_log,
    sleep_until,
    supervise,
)

if TYPE_CHECKING:
    from submitit import Executor, Job

# Jobs in the queue at once, if infra.workers is not set.
CLUSTER_WORKERS = 16
_TAIL_CHARACTERS = 4000
# Greatest age of the queue's state for a job, and for one that was asked to end [s].
_NEWS_S, _ASKED_NEWS_S = 20.0, 3.0
# A job that was asked to end may have nothing to record: the wait for its files is shorter [s].
_ASKED_GRACE_S = 5.0
# Time for a node to see a kill request on the shared disk.
_KILL_PATIENCE_S = 30.0
# What the supervisor needs beside the job, and the time that a job takes to stop.
_EXTRA_GIB, _EXTRA_MINUTES = 0.5, 5
_NO_END_MINUTES = 365 * 24 * 60
# squeue burdens all users of the cluster. Shorter than the ages above.
_SQUEUE_PAUSE_S = 2.0


class SlurmSettings(Section):
    """The keys of `infra=slurm`; conf/infra/slurm.yaml explains them."""

    cluster: Literal["slurm", "local"] = "slurm"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    mem_gib: PositiveFloat | None = None
    timeout_minutes: Count | None = None
    gpus_per_node: NonNegative | None = None
    cpus_per_task: Count | None = None
    signal_delay_s: Count = 120
    resubmit: NonNegative = 0
    setup: list[str] = Field(default_factory=list)
    sbatch: dict[str, str | int | float | bool] = Field(default_factory=dict)
    folder: Annotated[str, Field(min_length=1)] = "outputs/slurm"

    def minutes(self, spec: JobSpec) -> int | None:
        """Return the time that a job gets from the cluster [min], None for its default."""
        limit = spec.limits.time_s
        if self.timeout_minutes is not None or limit is None:
            return self.timeout_minutes
        return math.ceil((limit + self.signal_delay_s) / 60) + _EXTRA_MINUTES


class Slurm:
    """A real cluster: sbatch, squeue and scancel."""

    look_s = 1.0  # How often a job's files are read [s]
    grace_s = 60.0  # How long the files of a finished job may take to appear here [s]

    def __init__(self, executor: type[Executor], threads: int) -> None:
        for command in ("sbatch", "srun", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise ConfigError(
                    f"infra=slurm needs {command}, which is not on this machine. Run it where "
                    "SLURM's commands are, or try it out here with infra.cluster=local."
                )
        self._executor, self._threads = executor, threads
        self._queue: set[str] = set()
        self._read_at = self._tried_at = -math.inf

    def make_executor(self, settings: SlurmSettings, spec: JobSpec, folder: Path) -> Executor:
        """Return submitit's executor, with the options of sbatch."""
        limit = spec.limits.memory_gib
        memory = settings.mem_gib or (None if limit is None else limit + _EXTRA_GIB)
        executor = self._executor(folder)
        executor.update_parameters(
            job_name=re.sub(r"[^\w.-]+", "-", spec.name),
            partition=settings.partition,
            account=settings.account,
            qos=settings.qos,
            time=settings.minutes(spec),
            mem=None if memory is None else f"{math.ceil(memory * 1024)}M",
            cpus_per_task=settings.cpus_per_task or self._threads,
            gpus_per_node=settings.gpus_per_node or None,
            signal_delay_s=settings.signal_delay_s,
            setup=settings.setup,
            stderr_to_stdout=True,
            # The controller starts jobs again: it knows whether they were asked to end.
            additional_parameters={"no_requeue": True, **settings.sbatch},
        )
        return executor

    def is_gone(self, job: Job[Any], as_of: float) -> bool:
        """Return whether a job has left the queue, by a look at it since `as_of` (monotonic)."""
        now = time.monotonic()
        # Read for all jobs together.
        if self._read_at < as_of and now - self._tried_at > _SQUEUE_PAUSE_S:
            self._tried_at = now
            command = ["squeue", "--noheader", "--me", "--format=%i"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            # A queue that does not answer says nothing about the jobs.
            if done.returncode == 0:
                self._queue, self._read_at = set(done.stdout.split()), now
        return self._read_at >= as_of and job.job_id not in self._queue

    def signal(self, job: Job[Any]) -> None:
        """Take a job out of the queue if it waits, and signal its supervisor if it runs."""
        self._scancel("--state=PENDING", job.job_id)
        self._scancel("--signal=TERM", job.job_id)

    def end(self, job: Job[Any]) -> None:
        """Let SLURM kill all processes of a job."""
        self._scancel(job.job_id)

    def _scancel(self, *arguments: str) -> None:
        subprocess.run(["scancel", *arguments], capture_output=True, check=False)


class ThisMachine:
    """submitit's executor for one machine in place of a cluster; see `Slurm`."""

    look_s = 0.1
    grace_s = 1.0

    def __init__(self, executor: type[Executor]) -> None:
        self._executor = executor

    def make_executor(self, settings: SlurmSettings, spec: JobSpec, folder: Path) -> Executor:
        """Return an executor; it supports the options for time, GPUs and set-up only."""
        executor = self._executor(folder)
        executor.update_parameters(
            timeout_min=settings.minutes(spec) or _NO_END_MINUTES,
            signal_delay_s=settings.signal_delay_s,
            gpus_per_node=settings.gpus_per_node or 0,
            setup=settings.setup,
            stderr_to_stdout=True,
        )
        return executor

    def is_gone(self, job: Job[Any], as_of: float) -> bool:
        """Ask submitit's process that watches the job."""
        return job.done()

    def signal(self, job: Job[Any]) -> None:
        """Do nothing: the supervisor reads the job's folder often."""

    def end(self, job: Job[Any]) -> None:
        """Let submitit end the supervisor; the job then stops by itself."""
        job.cancel(check=False)


class SlurmLauncher:
    """Up to `slots` jobs in the queue at once."""

    shows_output = False
    Settings = SlurmSettings

    def __init__(self, options: LauncherOptions) -> None:
        try:
            import submitit
        except ImportError:
            raise ConfigError(
                "infra=slurm needs submitit. Install it: pip install 'rlzoo-plus[slurm]'."
            ) from None
        self.submitit = submitit
        self.settings: SlurmSettings = options.settings
        self.folder = Path(self.settings.folder).expanduser().absolute()
        self.cluster: Slurm | ThisMachine
        if self.settings.cluster == "local":
            self.cluster, self.slots = ThisMachine(submitit.LocalExecutor), options.slots
        else:
            self.cluster = Slurm(submitit.SlurmExecutor, options.threads_per_job)
            self.slots = options.workers or CLUSTER_WORKERS

    @classmethod
    def from_options(cls, options: LauncherOptions) -> SlurmLauncher:
        """Make a launcher."""
        return cls(options)

    def submit(self, spec: JobSpec) -> SlurmHandle:
        """Put a job into the queue."""
        return SlurmHandle(self, spec)

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until a job ends, or until the timeout."""
        sleep_until(lambda: any(handle.poll() is not None for handle in handles), timeout_s)


class SlurmHandle:
    """A job in the queue or on a node; its supervisor is reached through a folder."""

    def __init__(self, launcher: SlurmLauncher, spec: JobSpec) -> None:
        self.spec = spec
        self._launcher, self._cluster = launcher, launcher.cluster
        self._again = launcher.settings.resubmit
        self._asked: str | None = None
        self._end: JobEnd | None = None
        self._look_at = 0.0
        self._gone_since: float | None = None
        self._kill_at = math.inf
        self._ticket = make_ticket(spec)
        self._submit()

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it waits or runs; its node enforces its limits."""
        if self._end is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._cluster.look_s
            self._look()
        return self._end

    def stop(self) -> None:
        """Ask its supervisor to stop it; a waiting job leaves the queue."""
        self._ask(STOP)

    def kill(self) -> None:
        """End it and all its processes as soon as its node sees the request."""
        if self._ask(KILL):
            self._kill_at = time.monotonic() + _KILL_PATIENCE_S

    def _submit(self) -> None:
        parent = self._launcher.folder
        parent.mkdir(parents=True, exist_ok=True)
        # Made here and for this user alone: submitit unpickles what it finds there.
        self.folder = Path(tempfile.mkdtemp(prefix="job-", dir=parent))
        write_json(self.folder / TICKET, self._ticket)
        executor = self._cluster.make_executor(self._launcher.settings, self.spec, self.folder)
        try:
            # Without the variables of a cluster job that this process may run in itself.
            with without_ctrl_c(), self._launcher.submitit.helpers.clean_env():
                self.job = executor.submit(run_job, str(self.folder))
        except RuntimeError as error:
            self._clean_up()
            reason = " ".join(str(error).split())[-500:]
            raise ConfigError(f"SLURM rejects {self.spec.name}: {reason}") from error
        self._submitted = time.monotonic()

    def _ask(self, request: str) -> bool:
        if self._end is not None or self._asked in (KILL, request):
            return False
        self._asked = request
        with contextlib.suppress(OSError):
            write_atomic(self.folder / REQUEST, request + "\n")
        self._cluster.signal(self.job)
        return True

    def _look(self) -> None:
        found = self._recorded_end() or self._end_if_gone()
        if found is None:
            return
        end, by_cluster = found
        if by_cluster and self._asked is None:
            if self._again > 0:
                self._again -= 1
                self._gone_since = None
                note_in_log(self._ticket, f"{by_cluster}; submitted again")
                self._clean_up()
                self._submit()
                return
            end = JobEnd(end.code, end.limit or by_cluster)
        self._end = end
        self._clean_up()

    def _recorded_end(self) -> tuple[JobEnd, str | None] | None:
        """Return the end that the supervisor recorded, and what the cluster did, if anything."""
        try:
            record = json.loads((self.folder / END).read_text(encoding="utf-8"))
            code, limit, cluster = record["code"], record["limit"], record.get("cluster")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(code, int) or not all(
            isinstance(x, str | None) for x in (limit, cluster)
        ):
            return None
        return JobEnd(code, limit), cluster

    def _end_if_gone(self) -> tuple[JobEnd, str | None] | None:
        """Return the end of a job that left the queue without a record, once it is certain."""
        now, is_asked = time.monotonic(), self._asked is not None
        since = now - (_ASKED_NEWS_S if is_asked else _NEWS_S)
        if not self._cluster.is_gone(self.job, max(self._submitted, since)):
            self._gone_since = None
            if now > self._kill_at:
                self._kill_at = math.inf
                self._cluster.end(self.job)
            return None
        self._gone_since = self._gone_since or now
        longest = self._cluster.grace_s
        if now - self._gone_since < (min(longest, _ASKED_GRACE_S) if is_asked else longest):
            return None
        if not is_asked:
            with contextlib.suppress(OSError):
                text = self.job.paths.stdout.read_text(encoding="utf-8", errors="replace")
                note_in_log(self._ticket, text[-_TAIL_CHARACTERS:])
        code = EXIT_SIGTERM if self._asked == STOP else -signal.SIGKILL
        return JobEnd(code), f"the cluster's job {self.job.job_id} is gone; it can go on"

    def _clean_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._launcher.folder.rmdir()


# Files in a job's folder on the shared disk: the job, `stop` or `kill`, and how it ended.
TICKET, REQUEST, END = "ticket.json", "request", "end.json"
# Longer than SLURM gives to a job that it preempts or cancels, in most places.
_KILL_AFTER_S = 600.0


def run_job(folder: str) -> NoReturn:
    """Run the job of a folder and end with its exit code.

    submitit calls this. It never returns, so that submitit writes no result that the controller
    would have to unpickle.
    """
    code = 1
    try:
        code = _run(Path(folder))
    finally:
        os._exit(code if code >= 0 else 128 - code)


def _run(folder: Path) -> int:
    ticket = json.loads((folder / TICKET).read_text(encoding="utf-8"))
    signals: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signals.append(number)

    def asked() -> str | None:
        try:
            return (folder / REQUEST).read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    # submitit has SLURM send SIGUSR2 some time before the end of the job's time.
    handlers: dict[int, Any] = dict.fromkeys((signal.SIGTERM, signal.SIGUSR2), on_signal)
    handlers |= dict.fromkeys((signal.SIGCONT, signal.SIGINT), signal.SIG_IGN)
    with signal_handlers(handlers):
        end = supervise(ticket, lambda: asked() or (STOP if signals else None), _KILL_AFTER_S)
    # The signal counts only if the job ended because of it.
    is_stopped = end.code < 0 or end.code in (EXIT_SIGTERM, EXIT_SIGINT)
    cluster = None
    if signals and is_stopped and end.limit is None and asked() is None:
        when = "at the end of its time on" if signal.SIGUSR2 in signals else "by"
        cluster = f"stopped {when} the cluster; it can go on"
    write_json(folder / END, {"code": end.code, "limit": end.limit, "cluster": cluster})
    return end.code

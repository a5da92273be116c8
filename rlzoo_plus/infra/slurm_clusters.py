"""The commands of SLURM, and submitit's executor for one machine that stands in for them."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import Field

from rlzoo_plus.config.schema import Count, NonNegative, PositiveFloat, Section
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.job import JobSpec

if TYPE_CHECKING:
    from submitit import Executor, Job

# What the process beside the job needs itself, and what it takes to stop after its time.
_EXTRA_GIB, _EXTRA_MINUTES = 0.5, 5
_NO_END_MINUTES = 365 * 24 * 60
# squeue burdens what all users of the cluster share. Shorter than any news may be old.
_SQUEUE_PAUSE_S = 2.0


class SlurmSettings(Section):
    """The keys of `infra=slurm`; what they mean is in conf/infra/slurm.yaml."""

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


class Cluster(Protocol):
    """What differs between SLURM and submitit's executor for this machine.

    Attributes:
        look_s: How often a job's files are looked at [s].
        grace_s: How long the files of a job that is gone may take to appear here [s].
    """

    look_s: float
    grace_s: float

    def make_executor(self, settings: SlurmSettings, spec: JobSpec, folder: Path) -> Executor:
        """Return what submits one job."""

    def is_gone(self, job: Job[Any], as_of: float) -> bool:
        """Tell whether a job neither waits nor runs, by news from then on, in `time.monotonic`."""

    def signal(self, job: Job[Any]) -> None:
        """Hasten what was asked for in the job's folder."""

    def end(self, job: Job[Any]) -> None:
        """End what does not hear."""


class Slurm:
    """A real cluster: sbatch, squeue and scancel."""

    look_s = 1.0
    grace_s = 60.0

    def __init__(self, threads: int) -> None:
        for command in ("sbatch", "srun", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise ConfigError(
                    f"infra=slurm needs {command}, which is not on this machine. Run it where "
                    "SLURM's commands are, or try it out here with infra.cluster=local."
                )
        self._threads = threads
        self._queue: set[str] = set()
        self._read_at = self._tried_at = -math.inf

    def make_executor(self, settings: SlurmSettings, spec: JobSpec, folder: Path) -> Executor:
        """Return an executor with the options of sbatch."""
        from submitit import SlurmExecutor

        executor = SlurmExecutor(folder)
        executor.update_parameters(
            job_name=re.sub(r"[^\w.-]+", "-", spec.name),
            partition=settings.partition,
            account=settings.account,
            qos=settings.qos,
            time=_minutes(settings, spec),
            mem=_memory(settings, spec),
            cpus_per_task=settings.cpus_per_task or self._threads,
            gpus_per_node=settings.gpus_per_node or None,
            signal_delay_s=settings.signal_delay_s,
            setup=settings.setup,
            stderr_to_stdout=True,
            # Who starts a job again is the controller: it knows whether it was wanted.
            additional_parameters={"no_requeue": True, **settings.sbatch},
        )
        return executor

    def is_gone(self, job: Job[Any], as_of: float) -> bool:
        """Look into the queue, which is read for all jobs together."""
        now = time.monotonic()
        if self._read_at < as_of and now - self._tried_at > _SQUEUE_PAUSE_S:
            self._tried_at = now
            self._read_queue()
        return self._read_at >= as_of and job.job_id not in self._queue

    def signal(self, job: Job[Any]) -> None:
        """Take it out of the queue if it waits, and signal the process beside it if it runs."""
        self._scancel("--state=PENDING", job.job_id)
        self._scancel("--signal=TERM", job.job_id)

    def end(self, job: Job[Any]) -> None:
        """Let SLURM kill all its processes."""
        self._scancel(job.job_id)

    def _scancel(self, *words: str) -> None:
        subprocess.run(["scancel", *words], capture_output=True, check=False)

    def _read_queue(self) -> None:
        began = time.monotonic()
        command = ["squeue", "--noheader", "--me", "--format=%i"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # A SLURM that does not answer says nothing about the jobs.
        if done.returncode == 0:
            self._queue = set(done.stdout.split())
            self._read_at = began


class ThisMachine:
    """submitit's executor for one machine, which needs no cluster."""

    look_s = 0.1
    grace_s = 1.0

    def make_executor(self, settings: SlurmSettings, spec: JobSpec, folder: Path) -> Executor:
        """Return an executor; of the options it knows time, GPUs and set-up."""
        from submitit import LocalExecutor

        executor = LocalExecutor(folder)
        executor.update_parameters(
            timeout_min=_minutes(settings, spec) or _NO_END_MINUTES,
            signal_delay_s=settings.signal_delay_s,
            gpus_per_node=settings.gpus_per_node or 0,
            setup=settings.setup,
            stderr_to_stdout=True,
        )
        return executor

    def is_gone(self, job: Job[Any], as_of: float) -> bool:
        """Ask the process that watches over the job."""
        return job.done()

    def signal(self, job: Job[Any]) -> None:
        """Do nothing: the job's folder is looked at often."""

    def end(self, job: Job[Any]) -> None:
        """Let submitit end the process beside the job; the job then stops by itself."""
        job.cancel(check=False)


def _minutes(settings: SlurmSettings, spec: JobSpec) -> int | None:
    if settings.timeout_minutes is not None:
        return settings.timeout_minutes
    limit = spec.limits.time_s
    if limit is None:
        return None
    return math.ceil((limit + settings.signal_delay_s) / 60) + _EXTRA_MINUTES


def _memory(settings: SlurmSettings, spec: JobSpec) -> str | None:
    limit = spec.limits.memory_gib
    asked = settings.mem_gib or (None if limit is None else limit + _EXTRA_GIB)
    return None if asked is None else f"{math.ceil(asked * 1024)}M"

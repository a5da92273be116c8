"""The machine of a worker: what it costs, when it goes, and the run or job it was started for."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.attempts import Machine
from rlzoo_plus.store.contract import ArtifactStore
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.workers.spot_notice import Metadata, SpotWatch, instance_type


@dataclass(frozen=True)
class Host:
    """The machine of one worker."""

    # An id of the worker that no other process has ever used.
    worker: str = field(default_factory=lambda: worker_name(None))
    # What it tells of the machine.
    machine: Machine = field(
        default_factory=lambda: Machine(processor=str(machine_fingerprint()["processor"]))
    )
    only: str | None = None  # the key of the only run that it takes, None for any
    # Looks for the notice that the machine is taken away, None if nothing does.
    watch: SpotWatch | None = None

    @property
    def is_noticed(self) -> bool:
        """Whether the machine is being taken away."""
        return self.watch is not None and self.watch.is_noticed

    @property
    def left_s(self) -> float:
        """How long the machine is there still [s], infinite as far as is known."""
        return math.inf if self.watch is None else self.watch.left_s


def find_host(
    store: ArtifactStore,
    sweep: str,
    *,
    launch: str | None = None,
    spot: bool = False,
    usd_per_hour: float | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Host:
    """Return the machine that this process is on.

    A launch is `NAME`, or `NAME:FIRST` for an array job whose child 0 has the run at FIRST; a job
    of AWS Batch takes its run alone. With `spot`, the notice of a Spot instance is looked for;
    `usd_per_hour` is the most that one slot can cost.
    """
    job = this_batch_job(environ)
    only = None
    if launch is not None:
        name, _, first = launch.partition(":")
        keys = Launches(store, sweep).read(name).jobs
        if first and not (first.isascii() and first.isdigit() and len(first) < 10):
            raise ConfigError(f"--launch {printable(launch)}: write NAME, or NAME:FIRST.")
        if job is not None:
            number = int(first or 0) + (job.index or 0)
            if number >= len(keys):
                raise ConfigError(
                    f"launch {name} has {len(keys)} runs, and this job is for number {number}: "
                    "its array job is larger than the launch."
                )
            only = keys[number]
    # Of any other machine, the request would wait for nobody.
    metadata = Metadata(environ) if spot or job is not None else None
    kind = None if metadata is None else instance_type(metadata)
    machine = Machine(kind, str(machine_fingerprint()["processor"]), usd_per_hour)
    watch = SpotWatch(metadata) if metadata is not None and spot else None
    return Host(worker_name(job), machine, only, watch)


_ID = re.compile(r"(?P<id>[0-9A-Za-z-]{1,64})(?::(?P<index>[0-9]{1,5}))?")


@dataclass(frozen=True)
class BatchJob:
    """A job, or a child of an array job."""

    id: str  # id of the job, of a child that of its array job
    index: int | None = None  # number of the child, None for a job that is no child

    @property
    def name(self) -> str:
        """What AWS calls it: `ID` or `ID:INDEX`."""
        return self.id if self.index is None else f"{self.id}:{self.index}"


def this_batch_job(environ: Mapping[str, str] = os.environ) -> BatchJob | None:
    """Return the job that this process runs in, None if it is no job of Batch."""
    name, index = environ.get("AWS_BATCH_JOB_ID"), environ.get("AWS_BATCH_JOB_ARRAY_INDEX")
    if name is None:
        return None
    found = _ID.fullmatch(name)
    if found is None or (index is not None and not re.fullmatch(r"[0-9]{1,5}", index)):
        raise ConfigError(
            f"AWS_BATCH_JOB_ID={name!r} with AWS_BATCH_JOB_ARRAY_INDEX={index!r} is no job of AWS "
            "Batch: these variables are for Batch alone to set."
        )
    # Not everything that acts as Batch sets the index.
    number = index if index is not None else found["index"]
    return BatchJob(found["id"], None if number is None else int(number))


def worker_name(job: BatchJob | None) -> str:
    """Return an id of a worker that no other process has, and that names its host or its job."""
    if job is None:
        return f"{socket.gethostname() or 'host'}-{os.getpid()}-{secrets.token_hex(8)}"
    index = "" if job.index is None else f"_{job.index}"
    return f"batch-{job.id}{index}_{secrets.token_hex(8)}"

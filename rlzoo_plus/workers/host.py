"""The machine of a worker: what it costs, when it goes, and which run it was started for."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.attempts import Machine
from rlzoo_plus.store.contract import ArtifactStore
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.workers.batch_job import this_batch_job, worker_name
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

"""The job of AWS Batch that this process runs in, from its environment, and the worker's name."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from rlzoo_plus.errors import ConfigError

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

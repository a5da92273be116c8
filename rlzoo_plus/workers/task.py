"""A job that a worker may take, made of its untrusted record, and one that it has taken."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.find_run import Place, foreign_code_of, read_config
from rlzoo_plus.analysis.progress import about_run, read_evaluations, read_report
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.resolve import infra_of
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.train_job import run_job
from rlzoo_plus.store.contract import is_name
from rlzoo_plus.store.lease import KILL, STOP, RunLease
from rlzoo_plus.store.sync import RunSync
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Limits
from rlzoo_plus.sweeps.states import log_file
from rlzoo_plus.sweeps.sweep_job import SweepJob, load_job
from rlzoo_plus.version import __version__

_RUN_TARGET = "rlzoo_plus.workers.task:run_with_code"
# Of the time that a machine is there after its notice, what the last push needs [s].
_PUSH_LEFT_S = 20.0
_CODE = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Rules:
    """What a worker takes."""

    # Whether jobs may bring code of their own, and name code, trackers and URLs.
    trust: bool = False
    any_version: bool = False  # whether jobs of other versions of this package are taken
    # The functions, `module:function`, that jobs other than runs may name.
    targets: Collection[str] = ()


@dataclass(frozen=True)
class Task:
    """A job that a worker may take."""

    key: str  # its name within the sweep
    run_dir: RunDir  # where it works on this machine
    spec: JobSpec  # the job as a launcher takes it
    job: SweepJob | None = None  # the run, None for a job of another kind
    code: str | None = None  # name of the code that it brings, None without
    follow: bool = False  # whether its beats carry its evaluations
    max_usd: float | None = None  # what all attempts at it may cost together [$], None for no limit

    def with_code(self, folder: Path) -> Task:
        """Return it with the folder that its process finds its own code in."""
        data = {**self.spec.data, "code": str(folder.absolute())}
        return replace(self, spec=replace(self.spec, data=data))

    def is_finished(self, end: JobEnd) -> bool:
        """Return whether all its work is done, given how its process ended."""
        return end.code == 0 if self.job is None else self.job.is_finished()

    def report(self) -> dict[str, Any]:
        """Return what a beat says about it: plain data, at most some 50 kB."""
        if self.job is None:
            return {}
        report = {**about_run(self._config()), **read_report(self.run_dir)}
        if self.follow:
            report["evaluations"] = read_evaluations(self.run_dir)
        return report

    def _config(self) -> RunConfig:
        """Return its configuration, as it is trained once it has begun: that decides its hash."""
        assert self.job is not None
        try:
            return read_config(Place(self.run_dir.path))
        except ConfigError:
            return self.job.config


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


def load_task(folder: Path, record: Mapping[str, Any], rules: Rules) -> Task:
    """Make a task below a folder from an untrusted record of `Submissions.records`."""
    about = record.get("about", {})
    version = about.get("version")
    if version != __version__ and not rules.any_version:
        raise ConfigError(
            f"made with rlzoo_plus {printable(version)}, and this is {__version__}. Install that "
            "version, or add --any-version: its results may differ then."
        )
    code = about.get("code")
    if code is not None and not (isinstance(code, str) and _CODE.fullmatch(code)):
        raise ConfigError(f"{printable(repr(code))} is no name of code.")
    if "target" in record:
        return _other_task(folder, record, rules)
    job = _placed(load_job(folder, dict(record)))
    if not is_name(job.key):
        raise ConfigError(f"{printable(job.key)} is no name of a run in a store.")
    foreign = _foreign_to(job) + ([] if code is None else ["the code in the store"])
    if foreign and not rules.trust:
        raise ConfigError(
            f"needs code that is not ours: {printable(', '.join(foreign))}. If you know who "
            "writes to this store, add --trust to import it."
        )
    data = {"config": job.config.model_dump(), "command": job.command}
    limits = Limits.of(job.config.infra)
    spec = JobSpec(job.title, _RUN_TARGET, data, log_file(job.run_dir), limits)
    follow, share = record.get("follow") is True, _share(record)
    return Task(job.key, job.run_dir, spec, job, code, follow, share)


def run_with_code(data: dict[str, Any]) -> int:
    """Train a job whose own code is in a folder; return the exit code of `train`."""
    if data.get("code") is not None:
        sys.path.insert(0, data["code"])
    return run_job(data)


def _other_task(folder: Path, record: Mapping[str, Any], rules: Rules) -> Task:
    key, target, data = (record.get(name) for name in ("job", "target", "data"))
    if target not in rules.targets:
        raise ConfigError(f"{printable(repr(target))} is no function that this worker calls.")
    if not isinstance(key, str) or not is_name(key) or not isinstance(data, dict):
        raise ConfigError(f"{printable(repr(key))} is no job of this sweep.")
    run_dir = RunDir(folder / key)
    try:
        limits = Limits(**(record.get("limits") or {}))
    except TypeError as error:
        raise ConfigError(f"the limits of {printable(key)} are damaged.") from error
    title = printable(record.get("title") or key)
    spec = JobSpec(title, str(target), data, log_file(run_dir), limits)
    return Task(key, run_dir, spec, max_usd=_share(record))


def _share(record: Mapping[str, Any]) -> float | None:
    """Return what a run may cost [$], None for no limit."""
    share = record.get("max_usd")
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < math.inf:
        raise ConfigError(f"max_usd={printable(repr(share))} is no amount above 0.")
    return float(share)


def _placed(job: SweepJob) -> SweepJob:
    """Return a run as it is trained here: only its limits count of where it was to run."""
    infra = job.config.infra
    limits = {"memory_gib": infra.memory_gib, "time_limit_minutes": infra.time_limit_minutes}
    here = {"infra": infra_of({"name": "local", **limits}), "store": None}
    # It goes on wherever a worker before this one has left it.
    again = {"resume": "auto", "restart": False}
    return replace(job, config=job.config.model_copy(update={**here, **again}))


def _foreign_to(job: SweepJob) -> list[str]:
    """Return what a run would import, connect to or read that this project does not ship."""
    # A path of this machine, too: the run would send the policy that is there to the store.
    start = job.config.init_from
    return foreign_code_of(job.config) + ([f"init_from={start}"] if start else [])

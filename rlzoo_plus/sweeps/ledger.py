"""The ledger of a sweep: an append-only file with its jobs and what happened to them.

The state of a job is in its run directory, not here; the ledger adds only why a job ended that
could not record it itself. Lines of several controllers may be mixed, and the last one may be torn.
A job whose record is damaged stays in the file; the command that added it writes it anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.records import append_records, iter_records
from rlzoo_plus.artifacts.secrets import redact_all
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.sections import SharedSections
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.sweep_job import SWEEPS, SweepJob, load_job, sweep_dir

log = logging.getLogger(__name__)

NAME = "ledger.jsonl"
_MOST_WARNED = 10
ADDED, STARTED, DONE, FAILED, STOPPED, REMOVED = (
    *("added", "started", "done", "failed", "stopped", "removed"),
)


@dataclass
class Past:
    """The content of a ledger."""

    # The jobs of the sweep by their key, in the order in which they were added.
    jobs: dict[str, SweepJob] = field(default_factory=dict)
    # The last event of each job that has one, by its key.
    last: dict[str, dict[str, Any]] = field(default_factory=dict)


class Ledger:
    """The file."""

    def __init__(self, sweep: Path) -> None:
        self.sweep = sweep
        self.path = sweep / NAME
        self._loader = JobLoader(sweep)

    def add(self, jobs: Iterable[SweepJob]) -> None:
        """Record the jobs that are not in it yet, or with another configuration."""
        known, _ = self._records()
        new = []
        for job in jobs:
            record, before = job.record(), known.get(job.key, {})
            if any(before.get(name) != value for name, value in record.items()):
                new.append({"event": ADDED, "job": job.key, "t": time.time(), **record})
        # A value of the user's may be infinite, which is not the same as null.
        append_records(self.path, new, keep_infinities=True)

    def write(self, event: str, job: SweepJob, **details: Any) -> None:
        """Record what happened to a job."""
        record = {"event": event, "job": job.key, "t": time.time(), **redact_all(details)}
        append_records(self.path, [record])

    def read(self) -> Past:
        """Return its content; a job whose record is damaged is left out, with one warning."""
        records, last = self._records()
        return Past(self._loader.load(records), last)

    def _records(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return the record of each job that is in the sweep, and its last event, by key."""
        records: dict[str, dict[str, Any]] = {}
        last: dict[str, dict[str, Any]] = {}
        sections = SharedSections()
        for record in iter_records(self.path):
            key, event = record.get("job"), record.get("event")
            if not isinstance(key, str):
                continue
            if event == ADDED:
                if "config" in record:
                    record["config"] = sections.share(record["config"])
                records[key] = record
            elif event == REMOVED:
                records.pop(key, None)
                last.pop(key, None)
            else:
                last[key] = record
        return records, last


class JobLoader:
    """Makes the jobs of a sweep from their records; warns once of each that is damaged."""

    def __init__(
        self, sweep: Path, name: str | None = None, is_key: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Name a sweep.

        The directory need not exist; `name` stands for it in warnings. `is_key` returns whether a
        run can be called so, beside what `load_job` asks for.
        """
        self._sweep, self._name, self._is_key = sweep, name or str(sweep), is_key
        self._damaged: set[str] = set()

    def load(self, records: Mapping[str, dict[str, Any]]) -> dict[str, SweepJob]:
        """Return the job of each record by its key, without those that are damaged."""
        jobs, n_damaged = {}, len(self._damaged)
        for key, record in records.items():
            try:
                if not self._is_key(key):
                    raise ConfigError(f"{self._name}: {printable(repr(key))} is no name of a run")
                jobs[key] = load_job(self._sweep, record)
            except ConfigError as error:
                if key not in self._damaged and len(self._damaged) < n_damaged + _MOST_WARNED:
                    log.warning("left out: %s", str(error).replace(str(self._sweep), self._name))
                self._damaged.add(key)
        n_more = len(self._damaged) - n_damaged - _MOST_WARNED
        if n_more > 0:
            log.warning("left out: %s: %s more jobs, for such reasons", self._name, f"{n_more:,}")
        return jobs


def open_sweep(name: str) -> Ledger:
    """Return the ledger of a sweep that exists; a name is looked up below outputs/sweeps."""
    for path in (Path(name), sweep_dir(name)):
        if (path / NAME).is_file():
            check_inside(path, path / NAME)
            return Ledger(path)
    known = sorted(file.parent.name for file in SWEEPS.glob(f"*/{NAME}"))
    there = f"There are: {', '.join(known)}." if known else "Start one with `rlzoo-plus train -m`."
    raise ConfigError(f"{name}: no such sweep, here or in {SWEEPS}. {there}")

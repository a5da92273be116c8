"""Finds the runs of a sweep in a store that nobody trains, and takes their leases."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.attempts import Account
from rlzoo_plus.store.contract import ArtifactStore, Entry, StoreError, in_parallel
from rlzoo_plus.store.lease import (
    ENDED,
    LARGEST_BYTES,
    RUNNING,
    RunLease,
    lease_name,
    list_leases,
    read_record,
)
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.workers.task import Rules, Task, load_task

log = logging.getLogger(__name__)
# Workers that start together choose among so many.
_CHOICE = 8
# Records that are read together, and those of runs that are probably at work, at a time.
_BATCH, _MOST_YOUNG = 64, 32


@dataclass
class Look:
    """What one look at a sweep has found."""

    # The runs that are ours from now on.
    claimed: list[tuple[Task, RunLease]] = field(default_factory=list)
    n_open: int = 0  # runs that may be taken later: there were enough, or something is in the way
    n_elsewhere: int = 0  # runs of other workers
    n_alive: int = 0  # those of them whose worker was seen to beat since this one began
    n_refused: int = 0  # runs that this worker does not take


class Claims:
    """The runs of a sweep, as one worker sees them.

    One thread at a time looks; others may put off or leave runs meanwhile. Its methods
    raise `StoreError` if a request failed.
    """

    def __init__(
        self,
        store: ArtifactStore,
        sweep: str,
        folder: Path,
        worker: str,
        rules: Rules,
        expires_s: float,
        only: str | None = None,
        account: Callable[[Task], Account | None] = lambda _: None,
    ) -> None:
        """Name a sweep, as `Worker` does; nothing is requested yet.

        `account` returns what an attempt at a run is told to cost.
        """
        self._only, self._account = only, account
        self._store, self._sweep, self._folder = store, sweep, folder
        self._worker, self._rules, self._expires_s = worker, rules, expires_s
        self._submissions = Submissions(store, sweep)
        # By the name of a lease: its tag, and what the record said.
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._tasks: dict[str, tuple[dict[str, Any], Task | str]] = {}
        self._reasons: set[str] = set()
        self._later: dict[str, float] = {}
        self._n_put_off: Counter[str] = Counter()
        self._left: set[str] = set()
        # Of each run of another worker: that worker and its number of beats when first seen.
        self._first_seen: dict[str, tuple[Any, Any]] = {}

    def has_jobs(self) -> bool:
        """Return whether anything was submitted."""
        return bool(self._submissions.read())

    def has_others(self) -> bool:
        """Return whether another worker is at work."""
        listed = list_leases(self._store, self._sweep)
        young = [entry for entry in listed.values() if entry.age_s < self._expires_s]
        self._read(young)
        records = [self._record(entry) or {} for entry in young]
        return any(r.get("state") == RUNNING and r.get("worker") != self._worker for r in records)

    def put_off(self, key: str, delay_s: float, at_most: int | None = None) -> None:
        """Leave a run alone for a while; leave it to other workers if that has not helped often."""
        self._later[key] = time.monotonic() + delay_s
        self._n_put_off[key] += at_most is not None
        if at_most is not None and self._n_put_off[key] >= at_most:
            self.leave(key)

    def leave(self, key: str) -> None:
        """Leave a run to other workers."""
        self._left.add(key)

    def look(self, most: int, taken: Collection[str]) -> Look:
        """Take runs that nobody trains.

        `taken` are the keys of those that this worker has.
        """
        records = self._submissions.records()
        if self._only is not None:
            records = {key: record for key, record in records.items() if key == self._only}
        listed = list_leases(self._store, self._sweep)
        look, found = Look(), list[Task]()
        budget = _MOST_YOUNG
        others = iter([key for key in records if key not in taken])
        while batch := list(islice(others, _BATCH)):
            entries = [e for key in batch if (e := listed.get(self._lease(key))) is not None]
            unknown = [entry for entry in entries if self._record(entry) is None]
            young = [entry for entry in unknown if entry.age_s < self._expires_s]
            # The longer ago, the likelier it has ended.
            young = sorted(young, key=lambda entry: -entry.age_s)[:budget]
            budget -= len(young)
            self._read([e for e in unknown if e.age_s >= self._expires_s] + young)
            found += self._open_among(batch, records, listed, look)
            if len(found) >= most + _CHOICE:
                look.n_open += sum(1 for _ in others)
                break
        first = found[:_CHOICE]
        random.shuffle(first)
        for task in first + found[_CHOICE:]:
            if len(look.claimed) < most and (lease := self._claim(task, listed)) is not None:
                look.claimed.append((task, lease))
            else:
                look.n_open += 1
        return look

    def _open_among(
        self,
        keys: Collection[str],
        records: Mapping[str, dict[str, Any]],
        listed: Mapping[str, Entry],
        look: Look,
    ) -> Iterator[Task]:
        """Yield the runs that nobody trains; count the others."""
        for key in keys:
            entry = listed.get(self._lease(key))
            known = {} if entry is None else self._record(entry)
            state = None if known is None else known.get("state")
            if state in ENDED:
                continue
            is_young = entry is not None and entry.age_s < self._expires_s
            is_at_work = known is None or (state == RUNNING and known.get("worker") != self._worker)
            task = self._task(key, records[key])
            if task is None or key in self._left:
                look.n_refused += 1
            elif is_young and is_at_work:
                look.n_elsewhere += 1
                look.n_alive += self._is_alive(key, known)
            elif self._is_in_the_way(task):
                look.n_open += 1
            else:
                yield task

    def _is_alive(self, key: str, known: Mapping[str, Any] | None) -> bool:
        """Return whether another worker has beaten since it was seen first."""
        if known is None:
            return False
        sign = (known.get("worker"), known.get("beat"))
        return self._first_seen.setdefault(key, sign) != sign

    def _is_in_the_way(self, task: Task) -> bool:
        """Return whether a process, perhaps of a worker that was killed, uses the directory."""
        is_later = time.monotonic() < self._later.get(task.key, 0.0)
        return is_later or task.run_dir.lock.is_held_elsewhere()

    def _claim(self, task: Task, listed: Mapping[str, Entry]) -> RunLease | None:
        run = f"{self._sweep}/{task.key}"
        lease = RunLease(self._store, run, self._worker, self._account(task))
        try:
            return lease if lease.claim(listed, self._expires_s) else None
        except StoreError as error:
            log.warning("%s: %s", task.key, one_line(error))
            self.put_off(task.key, self._expires_s)
            return None

    def _task(self, key: str, record: dict[str, Any]) -> Task | None:
        before = self._tasks.get(key)
        if before is None or before[0] != record:
            try:
                found: Task | str = load_task(self._folder, record, self._rules)
            except ConfigError as error:
                found = one_line(error)
                if found not in self._reasons:
                    log.warning("%s is left to other workers: %s", printable(key), found)
                self._reasons.add(found)
            before = self._tasks[key] = (record, found)
        return before[1] if isinstance(before[1], Task) else None

    def _lease(self, key: str) -> str:
        return lease_name(f"{self._sweep}/{key}")

    def _record(self, entry: Entry) -> dict[str, Any] | None:
        """Return what a lease says, None if that is not known."""
        tag, record = self._known.get(entry.name, ("", {}))
        return record if tag == entry.tag else None

    def _read(self, entries: Collection[Entry]) -> None:
        """Read leases; one that cannot be read stays unknown."""

        def read(entry: Entry) -> None:
            try:
                found = self._store.get(entry.name, LARGEST_BYTES)
            except StoreError as error:
                log.debug("%s", error)
                return
            if found is not None:
                self._known[entry.name] = (found[1], read_record(found[0]))

        in_parallel(read, entries)

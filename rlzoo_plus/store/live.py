"""The records of all leases of a store, or of one sweep: read again only where they changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.store.cache import cache_of, hash_of, read_cached
from rlzoo_plus.store.contract import CONNECTIONS, ArtifactStore, Entry, StoreError, in_parallel
from rlzoo_plus.store.lease import (
    EXPIRES_S,
    FOLDER,
    LARGEST_BYTES,
    RUNNING,
    read_record,
    request_in,
)

MOST_RUNS = 1_000_000
_MOST_FAILED, _MOST_ROUNDS = 2 * CONNECTIONS, 8
_SUFFIX = ".json"
# Long, and only for those that steer a run.
_NOT_CACHED = ("evaluations",)


@dataclass(frozen=True)
class LiveRecord:
    """What the lease of a run says; another machine wrote it, so nothing of it is checked."""

    run: str  # the run's name, `sweep/run`
    tag: str  # changes with the record
    age_s: float  # time since it was written, by the clock of the store [s]
    record: dict[str, Any]  # the record, empty if it is damaged

    @property
    def state(self) -> str:
        """One of those of `rlzoo_plus.store.lease`, or anything else."""
        return str(self.record.get("state", ""))

    @property
    def is_trained(self) -> bool:
        """Whether a worker that has given a sign of life lately trains the run."""
        return self.state == RUNNING and self.age_s < EXPIRES_S

    @property
    def is_asked_to_end(self) -> bool:
        """Whether somebody asked the worker of the run to end it."""
        return request_in(self.record) is not None


class LiveRecords:
    """Reads the records of a store's leases, and no record twice."""

    def __init__(
        self, store: ArtifactStore, folder: str | None = None, *, on_disk: bool = True
    ) -> None:
        """Name the records; nothing is requested yet.

        A folder is the first part of the runs' names, such as a sweep. On disk, they are kept for
        the next process, without `evaluations`.
        """
        self._store, self._on_disk = store, on_disk
        self._prefix = f"{FOLDER}/" if folder is None else f"{FOLDER}/{folder}/"
        # Tag and record by the object's name.
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._loaded: set[str] = set()

    def read(self) -> dict[str, LiveRecord]:
        """Return the record of each run by its name: one listing, and what changed since the last.

        Raises:
            StoreError: Requests failed, again and again.
        """
        listed: dict[str, Entry] = {}
        for entry in self._store.list(self._prefix):
            if entry.name.endswith(_SUFFIX):
                listed[entry.name] = entry
                if len(listed) > MOST_RUNS:
                    raise StoreError(f"{self._store.url} has more than {MOST_RUNS:,} runs")
        folders = {_folder_of(name) for name in listed}
        if self._on_disk:
            for folder in folders - self._loaded:
                self._load(folder)
        self._known = {name: self._known[name] for name in listed if name in self._known}
        changed = self._changed(listed)
        try:
            self._fetch(changed)
        finally:
            if self._on_disk:
                for folder in {_folder_of(name) for name in changed}:
                    self._save(folder)
        found = {}
        for name, entry in listed.items():
            run = name.removeprefix(f"{FOLDER}/").removesuffix(_SUFFIX)
            found[run] = LiveRecord(run, entry.tag, entry.age_s, self._known[name][1])
        return found

    def _changed(self, listed: dict[str, Entry]) -> dict[str, Entry]:
        known = self._known
        return {n: e for n, e in listed.items() if n not in known or known[n][0] != e.tag}

    def _fetch(self, wanted: dict[str, Entry]) -> None:
        """Read records, again those whose request failed, unless all failed from the beginning."""
        n_rounds, left = 0, wanted
        while left:
            n_rounds += 1
            errors: list[StoreError] = []
            in_parallel(partial(self._try, failed=errors), left.values())
            left = self._changed(left)
            if errors and (len(left) == len(wanted) or n_rounds == _MOST_ROUNDS):
                raise errors[0]

    def _try(self, entry: Entry, failed: list[StoreError]) -> None:
        # Of a store that is gone, a few requests say enough.
        if len(failed) < _MOST_FAILED:
            try:
                self._read(entry)
            except StoreError as error:
                failed.append(error)

    def _read(self, entry: Entry) -> None:
        """Read one record; one that is too large or gone is a damaged one."""
        found = self._store.get(entry.name, LARGEST_BYTES) if entry.size <= LARGEST_BYTES else None
        record = {} if found is None else read_record(found[0])
        if self._on_disk:
            record = {key: value for key, value in record.items() if key not in _NOT_CACHED}
        # That of the listing: where the record changed since, the next call reads it again.
        self._known[entry.name] = (entry.tag, record)

    def _file(self, folder: str) -> Path:
        return cache_of(self._store.url) / FOLDER / f"{hash_of(folder)}.json"

    def _load(self, folder: str) -> None:
        self._loaded.add(folder)
        for name, known in read_cached(self._file(folder)).items():
            # It is a copy: whatever is wrong with it, the store has the record.
            if isinstance(known, list) and len(known) == 2 and isinstance(known[1], dict):
                self._known[name] = (str(known[0]), known[1])

    def _save(self, folder: str) -> None:
        """Keep the records of a folder; of two processes that do so at once, either is right."""
        kept = {name: known for name, known in self._known.items() if _folder_of(name) == folder}
        write_atomic(self._file(folder), json.dumps(kept))


def _folder_of(name: str) -> str:
    """Return the first part of the name of a lease's run."""
    return name.split("/")[1]

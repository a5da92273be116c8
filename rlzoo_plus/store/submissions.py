"""The jobs of a sweep in a store: numbered objects that are written once and never changed."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import parse_json, printable, read_plain_file
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import hash_of
from rlzoo_plus.store.contract import ArtifactStore, Entry, StoreError, is_name

log = logging.getLogger(__name__)
FOLDER = "submissions"
# Of one submission, and of all that a sweep has.
LARGEST_BYTES, LARGEST_SWEEP_BYTES = 2**28, 2**30
# The event of a record that takes a job out of the sweep.
REMOVED = "removed"
_MOST_WARNED = 10
_NAME = re.compile(r"(?P<number>[0-9]{6})\.jsonl")


def split_sweep_url(url: str) -> tuple[str, str]:
    """Return store and name of the sweep at `STORE/SWEEP`."""
    store, _, sweep = url.rstrip("/").rpartition("/")
    if not is_name(sweep) or not store or store.endswith((":", "/")):
        raise ConfigError(
            f"{printable(url)} names no sweep. Write STORE/SWEEP: s3://bucket/prefix/SWEEP, or a "
            "folder and the sweep. `rlzoo-plus ls STORE` lists the sweeps of a store."
        )
    return store, sweep


@dataclass(frozen=True)
class Submission:
    """What one command submitted."""

    number: int  # its place among the submissions of the sweep, from 1
    # `version` of this package, and `code`, the name of the code that the jobs need.
    about: dict[str, Any]
    # A record for each job, as in a sweep's ledger; nothing in them is checked.
    records: list[dict[str, Any]]


class Submissions:
    """The submissions of one sweep; what was read is not read again.

    Its methods raise `StoreError` if a request failed.
    """

    def __init__(self, store: ArtifactStore, sweep: str, cache: Path | None = None) -> None:
        """Name a sweep, and a folder that keeps what was read for the next process."""
        self._store, self._prefix, self._cache = store, f"{FOLDER}/{sweep}/", cache
        self._known: dict[int, Submission] = {}

    def read(self) -> list[Submission]:
        """Return all submissions by number; a damaged line is left out, with a warning."""
        size = 0
        for entry in self._store.list(self._prefix):
            found = _NAME.fullmatch(entry.name.removeprefix(self._prefix))
            size += 0 if found is None else entry.size
            if size > LARGEST_SWEEP_BYTES:
                raise StoreError(
                    f"{self._store.url}/{self._prefix} has more than {LARGEST_SWEEP_BYTES} bytes"
                )
            if found is not None and int(found["number"]) not in self._known:
                self._read(int(found["number"]), entry)
        return [self._known[number] for number in sorted(self._known)]

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the newest record of each job by its key, in the order of the first ones.

        Each has the `about` of its submission.
        """
        return newest_records(self.read())

    def add(self, records: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> int | None:
        """Submit the jobs that are not there yet, or with another content.

        Of two commands that submit at once, one is first; the other adds what is still missing.

        Args:
            records: Plain data with the job's key at `job`; one is that of a job with another
                content if any of its values differs.
            about: See `Submission`; a job with another version or code has another content.

        Returns:
            The number of the new submission, None if nothing was missing.
        """
        while True:
            known = self.records()
            new = [r for r in records if not _is_same(r, about, known.get(r["job"]))]
            if not new:
                return None
            number = max(self._known, default=0) + 1
            lines = [{"event": "submission", "format": 1, **about}, *new]
            data = "".join(json.dumps(line) + "\n" for line in lines).encode()
            name = f"{self._prefix}{number:06d}.jsonl"
            if not _NAME.fullmatch(f"{number:06d}.jsonl") or len(data) > LARGEST_BYTES:
                raise StoreError(f"{self._store.url}/{name} would not be read: it is too much")
            if self._store.put_if_absent(name, data) is not None:
                return number

    def _read(self, number: int, entry: Entry) -> None:
        data = self._data(entry)
        if data is None:
            return
        about, records = {}, []
        for line in _lines(data, f"{self._store.url}/{entry.name}"):
            if isinstance(line.get("job"), str):
                records.append(line)
            elif line.get("event") == "submission":
                about = line
        self._known[number] = Submission(number, about, records)

    def _data(self, entry: Entry) -> bytes | None:
        if self._cache is None:
            found = self._store.get(entry.name, LARGEST_BYTES)
            return None if found is None else found[0]
        # By its tag: a sweep of the same name may have been another one before.
        file = self._cache / f"{hash_of(f'{entry.name} {entry.tag}')}.jsonl"
        with contextlib.suppress(OSError, ValueError):
            return read_plain_file(file, LARGEST_BYTES)
        found = self._store.get(entry.name, LARGEST_BYTES)
        if found is None:
            return None
        write_atomic(file, found[0])
        return found[0]


def newest_records(submitted: Iterable[Submission]) -> dict[str, dict[str, Any]]:
    """Return the newest record of each job by its key; see `Submissions.records`."""
    newest: dict[str, dict[str, Any]] = {}
    for submission in submitted:
        for record in submission.records:
            if record.get("event") == REMOVED:
                newest.pop(record["job"], None)
            else:
                newest[record["job"]] = {**record, "about": submission.about}
    return newest


def _is_same(
    record: Mapping[str, Any], about: Mapping[str, Any], known: Mapping[str, Any] | None
) -> bool:
    # As it will be read: tuples are lists there, and keys are text.
    written = json.loads(json.dumps(record))
    return (
        known is not None
        and all(known.get(key) == value for key, value in written.items())
        and known["about"].items() >= about.items()
    )


def _lines(data: bytes, where: str) -> Iterator[dict[str, Any]]:
    n_damaged = 0
    for number, text in enumerate(data.splitlines(), 1):
        try:
            line = parse_json(text, allow_nan=True)
        except ValueError as error:
            n_damaged += 1
            if n_damaged <= _MOST_WARNED:
                log.warning("left out: %s, line %d: %s", where, number, printable(error))
            continue
        if isinstance(line, dict):
            yield line
    if n_damaged > _MOST_WARNED:
        log.warning("left out: %s: %s more lines", where, f"{n_damaged - _MOST_WARNED:,}")

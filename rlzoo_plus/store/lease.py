"""Lease on a run in a store: who trains it, whether they are alive, and how far they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlzoo_plus.artifacts.untrusted import parse_json
from rlzoo_plus.errors import RunError
from rlzoo_plus.store.contract import ArtifactStore, Entry

FOLDER = "live"
RUNNING, RELEASED, FINISHED, FAILED = "running", "released", "finished", "failed"
LARGEST_BYTES = 2**16
# Six beats of thirty seconds may fail.
EXPIRES_S = 180.0
_ATTEMPTS = 4


class LeaseLostError(RunError):
    """Another worker has the run now: stop, and write nothing more to the store."""


class RunLease:
    """The right to train one run; each beat renews it and reports progress in one request."""

    def __init__(self, store: ArtifactStore, run: str, worker: str) -> None:
        """Name a run; nothing is requested yet.

        Args:
            store: Where the run is.
            run: Its name, `sweep/run`.
            worker: An id that no other process has ever used.
        """
        self._store = store
        self.name = lease_name(run)
        self.worker = worker
        self._tag = ""
        self._beats = 0

    def claim(
        self,
        listed: Mapping[str, Entry],
        expires_s: float = EXPIRES_S,
        *,
        take_ended: bool = False,
    ) -> bool:
        """Take a run that nobody trains; return whether it is ours.

        Args:
            listed: What `list_leases` returned.
            expires_s: A lease without a beat for so long may be taken [s].
            take_ended: Take a finished or failed run, too.

        Raises:
            StoreError: A request failed; the claim may be made again.
        """
        entry = listed.get(self.name)
        if entry is None:
            return self._take(self._store.put_if_absent(self.name, self._record(RUNNING, {})))
        found = self._store.get(self.name, LARGEST_BYTES)
        if found is None or found[1] != entry.tag:
            # Somebody wrote it since the listing; our own write, if its answer was lost.
            return found is not None and self._adopt(*found)
        record = read_record(found[0])
        state = record.get("state")
        if self._adopt(*found) and state == RUNNING:
            return True
        ended = state in (FINISHED, FAILED)
        if (ended and not take_ended) or (state == RUNNING and entry.age_s < expires_s):
            return False
        new = self._record(RUNNING, {})
        return self._take(self._store.put_if_unchanged(self.name, new, entry.tag))

    def beat(self, state: str = RUNNING, **progress: Any) -> None:
        """Renew the lease, or end it with another state.

        Args:
            state: `running`, or `released`, `finished` or `failed` to end it.
            progress: Plain data that `status` commands show.

        Raises:
            LeaseLostError: Another worker took the run.
            StoreError: The request failed; beat again.
        """
        record = self._record(state, progress)
        for _ in range(_ATTEMPTS):
            if self._take(self._store.put_if_unchanged(self.name, record, self._tag)):
                return
            # A beat whose answer was lost has changed the tag: go on from there.
            found = self._store.get(self.name, LARGEST_BYTES)
            if found is None or not self._adopt(*found):
                break
        raise LeaseLostError(f"{self._store.url}/{self.name}: another worker has this run")

    def _record(self, state: str, progress: Mapping[str, Any]) -> bytes:
        self._beats += 1
        own = {"format": 1, "worker": self.worker, "beat": self._beats, "state": state}
        return json.dumps({**progress, **own}).encode()

    def _take(self, tag: str | None) -> bool:
        self._tag = tag or self._tag
        return tag is not None

    def _adopt(self, data: bytes, tag: str) -> bool:
        return read_record(data).get("worker") == self.worker and self._take(tag)


def lease_name(run: str) -> str:
    """Return the object that holds a run's lease."""
    return f"{FOLDER}/{run}.json"


def list_leases(store: ArtifactStore, folder: str) -> dict[str, Entry]:
    """Return all leases below a folder of runs by their object's name; a request for each 1,000.

    Raises:
        StoreError: The request failed.
    """
    return {entry.name: entry for entry in store.list(f"{FOLDER}/{folder}/")}


def read_record(data: bytes) -> dict[str, Any]:
    """Return what a lease says, empty if it is damaged."""
    try:
        record = parse_json(data)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}

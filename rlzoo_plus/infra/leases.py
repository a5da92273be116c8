"""What the leases of a sweep's runs say, read again and again: only what changed is requested."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.store.contract import ArtifactStore, Entry, is_name
from rlzoo_plus.store.lease import FOLDER, LARGEST_BYTES, list_leases, read_record
from rlzoo_plus.store.mirror import CONNECTIONS


@dataclass(frozen=True)
class Live:
    """The lease of a run.

    Attributes:
        record: What it says; nothing in it is checked.
        age_s: Time since it was written [s].
    """

    record: dict[str, Any]
    age_s: float

    @property
    def state(self) -> str:
        """The state of the run, see `rlzoo_plus.store.lease`; empty if it is damaged."""
        return str(self.record.get("state", ""))


class LiveRecords:
    """The leases of one sweep."""

    def __init__(self, store: ArtifactStore, sweep: str) -> None:
        """Name a sweep; nothing is requested yet."""
        self._store, self._sweep = store, sweep
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}

    def look(self) -> dict[str, Live]:
        """Return the lease of each run by the run's key: a listing, and a request for each change.

        Raises:
            StoreError: A request failed.
        """
        prefix, suffix = f"{FOLDER}/{self._sweep}/", ".json"
        found: dict[str, Entry] = {}
        for name, entry in list_leases(self._store, self._sweep).items():
            key = name.removeprefix(prefix).removesuffix(suffix)
            if is_name(key) and name.endswith(suffix) and entry.size <= LARGEST_BYTES:
                found[key] = entry
        self._known = {key: self._known[key] for key in found if key in self._known}
        changed = [key for key in found if self._known.get(key, ("",))[0] != found[key].tag]
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            names = [found[key].name for key in changed]
            for key, got in zip(changed, pool.map(self._get, names), strict=True):
                if got is not None:
                    self._known[key] = (got[1], read_record(got[0]))
        return {key: Live(record, found[key].age_s) for key, (_, record) in self._known.items()}

    def _get(self, name: str) -> tuple[bytes, str] | None:
        return self._store.get(name, LARGEST_BYTES)

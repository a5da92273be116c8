"""What commands asked a cloud for: the runs that a group of machines was started for, and how."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.untrusted import parse_json, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import ArtifactStore, StoreError, is_name
from rlzoo_plus.store.submissions import FOLDER

LARGEST_BYTES = 2**24
_NAME = re.compile(r"[0-9]{6}-[0-9a-f]{8}")


@dataclass(frozen=True)
class Launch:
    """Machines that one command asked for; whoever can write to the store has written it."""

    name: str  # its name; sorts by the order of the launches
    jobs: tuple[str, ...]  # the keys of the runs, in the order in which the machines count them
    infra: dict[str, Any]  # the settings of the launcher, plain data; nothing in them is checked


class Launches:
    """The launches of one sweep in a store; each is written once and never changed.

    Its methods raise `StoreError` if a request failed.
    """

    def __init__(self, store: ArtifactStore, sweep: str) -> None:
        """Name a sweep; nothing is requested yet."""
        self._store, self._prefix = store, f"{FOLDER}/{sweep}/launches/"
        self.sweep = sweep

    def add(self, jobs: Sequence[str], infra: Mapping[str, Any]) -> Launch:
        """Write a launch; machines that are given its name find their runs there.

        The settings of the launcher have no secrets.
        """
        numbers = [int(name.partition("-")[0]) for name in self.names()]
        name = f"{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"
        data = json.dumps({"format": 1, "jobs": list(jobs), "infra": dict(infra)}).encode()
        if len(data) > LARGEST_BYTES or self._store.put_if_absent(self._object(name), data) is None:
            raise StoreError(f"{self._store.url}/{self._object(name)} cannot be written")
        return Launch(name, tuple(jobs), dict(infra))

    def names(self) -> list[str]:
        """Return the names of all launches, the oldest first."""
        found = (
            entry.name.removeprefix(self._prefix).removesuffix(".json")
            for entry in self._store.list(self._prefix)
        )
        return sorted(name for name in found if _NAME.fullmatch(name))

    def read(self, name: str) -> Launch:
        """Return a launch."""
        where = f"{self._store.url} has no launch {printable(name)!r} of {printable(self.sweep)}"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: it is no such name.")
        found = self._store.get(self._object(name), LARGEST_BYTES)
        if found is None:
            raise ConfigError(f"{where}.")
        try:
            data = parse_json(found[0])
        except ValueError as error:
            raise ConfigError(f"{where} that can be read: {printable(error)}") from None
        jobs = data.get("jobs") if isinstance(data, dict) else None
        infra = data.get("infra") if isinstance(data, dict) else None
        if not isinstance(jobs, list) or not isinstance(infra, dict):
            raise ConfigError(f"{where} that is whole.")
        if not all(isinstance(job, str) and is_name(f"{self.sweep}/{job}") for job in jobs):
            raise ConfigError(f"{where} that names runs of this sweep only.")
        return Launch(name, tuple(jobs), infra)

    def _object(self, name: str) -> str:
        return f"{self._prefix}{name}.json"

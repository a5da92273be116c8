"""Submits jobs of a sweep to its store, and opens runs again that ended too early."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.store.code import send_code
from rlzoo_plus.store.contract import ArtifactStore, honours_conditions, in_parallel
from rlzoo_plus.store.lease import CANCELLED, ENDED, FAILED, reopen
from rlzoo_plus.store.live import LiveRecord, LiveRecords
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.version import __version__

log = logging.getLogger(__name__)
# Where it runs is for its worker to say; the limits go with the run.
_LIMITS = ("memory_gib", "time_limit_minutes")
_ELSEWHERE = ("run_dir", "sweep", "store")


class Submitter:
    """The jobs of one sweep in a store, from the side that submits them.

    Its methods raise `StoreError` if a request failed; the same call may be made again.
    """

    def __init__(self, store: ArtifactStore, sweep: str, code: Sequence[str] = ()) -> None:
        """Name a sweep, and folders and files that its jobs need; nothing is requested yet."""
        self.store, self.sweep = store, sweep
        self._live = LiveRecords(store, sweep, on_disk=False)
        self._submissions = Submissions(store, sweep)
        self._code = code
        self._about: dict[str, Any] | None = None

    def run(self, key: str) -> str:
        """Return the name of a run in the store."""
        return f"{self.sweep}/{key}"

    def live(self) -> dict[str, LiveRecord]:
        """Return what the leases of the sweep's runs say, by their keys."""
        found = self._live.read()
        return {run.removeprefix(f"{self.sweep}/"): live for run, live in found.items()}

    def keys(self) -> set[str]:
        """Return the keys of all jobs that are submitted."""
        return set(self._submissions.records())

    def n_open(self) -> int:
        """Return the number of jobs that have not ended."""
        ended = {key for key, live in self.live().items() if live.state in ENDED}
        return len(self.keys() - ended)

    def submit(self, records: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Submit the jobs that are missing, and let workers take failed and cancelled ones again.

        Returns:
            Number of jobs that were not in the store before, or with another content, and of ended
            runs that workers may take again.

        Raises:
            StoreError: A request failed; the same call may be made again.
            ConfigError: The code cannot be sent.
        """
        number = self._submissions.add(records, self.begin())
        new = [s.records for s in self._submissions.read() if s.number == number]
        # Workers that take a run now find the newest configuration.
        known = self.live()
        over = {key for key, live in known.items() if live.state in (FAILED, CANCELLED)}
        again = [record["job"] for record in records if record["job"] in over]
        opened = in_parallel(lambda key: reopen(self.store, self.run(key)), again)
        return sum(map(len, new)), sum(opened)

    def begin(self) -> dict[str, Any]:
        """Send the code, unless that was done, and return what each submission says about it."""
        if self._about is None:
            if not honours_conditions(self.store, uuid.uuid4().hex):
                log.warning(
                    "%s ignores the conditions of writes: let only one command and one worker "
                    "use it at a time",
                    self.store.url,
                )
            sha = send_code(self.store, self.sweep, self._code) if self._code else None
            self._about = {"version": __version__, "code": sha}
        return self._about


def run_record(key: str, config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Return the record of a run (see `SweepJob`), without what holds only on this machine."""
    infra = config["infra"]
    limits = InfraConfig(name="local", **{name: infra[name] for name in _LIMITS})
    kept = {name: value for name, value in config.items() if name not in _ELSEWHERE}
    config = {**kept, "infra": limits.model_dump()}
    return {"event": "added", "job": key, "config": config, "command": command}

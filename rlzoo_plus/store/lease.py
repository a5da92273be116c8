"""Lease on a run in a store: who trains it, whether they are alive, and how far they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.untrusted import parse_json, printable
from rlzoo_plus.errors import RunError
from rlzoo_plus.store.attempts import Account
from rlzoo_plus.store.contract import ArtifactStore, Entry, StoreError

FOLDER = "live"
RUNNING, RELEASED, FINISHED, FAILED = "running", "released", "finished", "failed"
# Nobody takes a cancelled run until `reopen`.
CANCELLED = "cancelled"
ENDED = (FINISHED, FAILED, CANCELLED)
# What the worker of a run can be asked to do.
STOP, KILL = "stop", "kill"
LARGEST_BYTES = 2**16
# Room for a request and what it says.
_LARGEST_OWN_BYTES = LARGEST_BYTES - 2**12
# Six beats of thirty seconds may fail.
EXPIRES_S = 180.0
_ATTEMPTS = 4


class LeaseLostError(RunError):
    """Another worker has the run now, or somebody ended it: stop, and write nothing more."""


class RunLease:
    """The right to train one run; each beat renews it and reports progress in one request.

    A record with a worker's id is what that worker wrote last, and perhaps a request: whoever ends
    or reopens a run without being its worker takes the id out.
    """

    def __init__(
        self, store: ArtifactStore, run: str, worker: str, account: Account | None = None
    ) -> None:
        """Name a run; nothing is requested yet.

        Args:
            store: Where the run is.
            run: Its name, `sweep/run`.
            worker: An id that no other process has ever used.
            account: What this attempt costs; by default, only those before it are carried on.
        """
        self._store = store
        self.name = lease_name(run)
        self.worker = worker
        self.account = account or Account(worker)
        self._tag = ""
        self._beats = 0
        # What `ask` has asked of this worker: `ask` and `reason`; None as long as nothing was.
        self.request: dict[str, Any] | None = None

    def claim(
        self, listed: Mapping[str, Entry], expires_s: float = EXPIRES_S, *, take_ended: bool = False
    ) -> bool:
        """Take a run that nobody trains; return whether it is ours.

        One whose share of a budget is spent is cancelled instead.

        Args:
            listed: What `list_leases` returned.
            expires_s: A lease without a beat for so long may be taken [s].
            take_ended: Take a finished, failed or cancelled run, too.

        Raises:
            StoreError: A request failed; the claim may be made again.
        """
        entry = listed.get(self.name)
        if entry is None and self._take(self._store.put_if_absent(self.name, self._new())):
            return True
        found = self._store.get(self.name, LARGEST_BYTES)
        if found is None:
            return False
        record = read_record(found[0])
        state = record.get("state")
        self.account.follow(record)
        # Our own claim, if its answer was lost.
        if state == RUNNING and self._adopt(*found):
            return True
        if entry is None or found[1] != entry.tag:
            # Somebody wrote it since the listing.
            return False
        if (state in ENDED and not take_ended) or (state == RUNNING and entry.age_s < expires_s):
            return False
        request, is_spent = request_in(record), self.account.must_stop
        if (request is not None or is_spent) and not take_ended:
            # Its worker died before it could obey, or it could not train for long.
            reason = self.account.reason if request is None else reason_in(request)
            new = json.dumps(_ended(record, CANCELLED, reason)).encode()
            self._store.put_if_unchanged(self.name, new, entry.tag)
            return False
        return self._take(self._store.put_if_unchanged(self.name, self._new(), entry.tag))

    def beat(self, state: str = RUNNING, **progress: Any) -> None:
        """Renew the lease, or end it with another state; learn what was asked of this worker.

        Args:
            state: `running`, or another one to end it. A run that was asked to end is `cancelled`
                instead of `released`: nobody else would know of the request.
            progress: Plain data that `status` commands show.

        Raises:
            LeaseLostError: Another worker took the run, or it was ended without this one.
            StoreError: The request failed; beat again.
        """
        for _ in range(_ATTEMPTS):
            record = self._record(state, progress)
            if self._take(self._store.put_if_unchanged(self.name, record, self._tag)):
                return
            # `ask` has changed the tag, or a beat whose answer was lost: go on from there.
            found = self._store.get(self.name, LARGEST_BYTES)
            if found is None or not self._adopt(*found):
                raise LeaseLostError(
                    f"{self._store.url}/{self.name}: another worker has this run, or it was ended"
                )
        raise StoreError(f"{self._store.url}/{self.name}: others wrote it each time; beat again")

    def _new(self) -> bytes:
        return self._record(RUNNING, {})

    def _record(self, state: str, progress: Mapping[str, Any]) -> bytes:
        self._beats += 1
        own: dict[str, Any] = {
            "format": 1,
            "worker": self.worker,
            "beat": self._beats,
            "state": state,
        }
        if self.request is not None:
            if state == RUNNING:
                own["request"] = self.request
            elif state == RELEASED:
                own |= {"state": CANCELLED, "reason": reason_in(self.request)}
        own |= self.account.data(None if own["state"] == RUNNING else str(own["state"]))
        # A NaN would make the record unreadable, and the run free for anyone.
        data = json.dumps({**finite(progress), **own}).encode()
        return data if len(data) <= _LARGEST_OWN_BYTES else json.dumps(own).encode()

    def _take(self, tag: str | None) -> bool:
        self._tag = tag or self._tag
        return tag is not None

    def _adopt(self, data: bytes, tag: str) -> bool:
        record = read_record(data)
        if record.get("worker") != self.worker:
            return False
        self.request = request_in(record) or self.request
        return self._take(tag)


def ask(
    store: ArtifactStore, run: str, request: str, reason: str, *, gone: str | None = None
) -> str:
    """Ask the worker of a run to end it, which it does at its next beat; cancel one without worker.

    `request` is `STOP`, with a checkpoint, or `KILL`. With `gone`, the tag of an expired lease, its
    worker is not asked, if it has this one still.

    Returns:
        The state of the run: `running` if its worker was asked, else one of `ENDED`.

    Raises:
        StoreError: A request failed, or other writers were faster each time.
    """

    def asked(record: Mapping[str, Any], tag: str) -> Mapping[str, Any]:
        state = record.get("state")
        if state in ENDED:
            return record
        if state != RUNNING or tag == gone:
            return _ended(record, CANCELLED, reason)
        before = request_in(record)
        if before is not None and before.get("ask") == KILL:
            return record
        return {**record, "request": {"ask": request, "reason": reason}}

    return _change(store, run, asked)


def reopen(
    store: ArtifactStore,
    run: str,
    states: Collection[str] = (FAILED, CANCELLED),
    *,
    gone: str | None = None,
) -> bool:
    """Let workers take a run again that ended in one of these states; return whether it was one.

    A run with `gone`, the tag of an expired lease whose worker had been asked to end it, is one of
    them, too.

    Raises:
        StoreError: A request failed, or other writers were faster each time.
    """
    changed = False

    def released(record: Mapping[str, Any], tag: str) -> Mapping[str, Any]:
        nonlocal changed
        if record.get("state") not in states and tag != gone:
            return record
        changed = True
        return _ended(record, RELEASED, "")

    _change(store, run, released)
    return changed


def holder(store: ArtifactStore, run: str) -> str | None:
    """Return the id of the worker that has a run now, None if anyone may take it."""
    entry = list_leases(store, run.rpartition("/")[0]).get(lease_name(run))
    found = None if entry is None else store.get(entry.name, LARGEST_BYTES)
    if entry is None or found is None or entry.age_s >= EXPIRES_S:
        return None
    record = read_record(found[0])
    return str(record.get("worker")) if record.get("state") == RUNNING else None


def request_in(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a record says was asked of its worker, None if nothing was."""
    request = record.get("request")
    return request if isinstance(request, dict) else None


def reason_in(request: Mapping[str, Any]) -> str:
    """Return why something was asked, safe to print."""
    return printable(request.get("reason", ""))


def _ended(record: Mapping[str, Any], state: str, reason: str) -> dict[str, Any]:
    """Return a record after somebody else than its worker ended it: that worker has lost it."""
    kept = {name: value for name, value in record.items() if name != "request"}
    return {"format": 1, **kept, "worker": "", "state": state, "reason": printable(reason)}


def _change(
    store: ArtifactStore, run: str, change: Callable[[Mapping[str, Any], str], Mapping[str, Any]]
) -> str:
    """Replace a lease's record by what a function makes of it and its tag; return the new state."""
    name = lease_name(run)
    for _ in range(_ATTEMPTS):
        found = store.get(name, LARGEST_BYTES)
        record = {} if found is None else read_record(found[0])
        new = change(record, "" if found is None else found[1])
        data = json.dumps(new).encode()
        if new is record:
            done = True
        elif found is None:
            done = store.put_if_absent(name, data) is not None
        else:
            done = store.put_if_unchanged(name, data, found[1]) is not None
        if done:
            return str(new.get("state", ""))
    raise StoreError(f"{store.url}/{name}: others wrote it each time; try again")


def lease_name(run: str) -> str:
    """Return the object that holds a run's lease."""
    return f"{FOLDER}/{run}.json"


def list_leases(store: ArtifactStore, folder: str) -> dict[str, Entry]:
    """Return all leases below a folder of runs by their object's name; a request for each 1,000."""
    return {entry.name: entry for entry in store.list(f"{FOLDER}/{folder}/")}


def read_record(data: bytes) -> dict[str, Any]:
    """Return what a lease says, empty if it is damaged."""
    try:
        record = parse_json(data)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}

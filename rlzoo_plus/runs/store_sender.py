"""The process beside a training that sends its run to a store: claims, beats, pushes, and ends.

It imports no torch, has a session of its own, and ends soon after the training's process does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rlzoo_plus.analysis.progress import read_report
from rlzoo_plus.artifacts import run_dir as states
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import RunError
from rlzoo_plus.store import lease as leases
from rlzoo_plus.store.contract import (
    ArtifactStore,
    Check,
    StoreError,
    honours_conditions,
    open_store,
)
from rlzoo_plus.store.lease import EXPIRES_S, LeaseLostError, RunLease, list_leases, read_record
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.pull import newest_step
from rlzoo_plus.store.sync import BEAT_S, PUSH_S, RunSync

# At the end, nothing arrives for so long, or it has taken so long: the rest stays here [s].
STALL_S, LONGEST_END_S = 60.0, 900.0
_LOOK_S, _LONGEST_RETRY_S, _RELEASE_S = 0.2, 15.0, 10.0
_IN_STORE = {
    states.FINISHED: leases.FINISHED,
    states.INTERRUPTED: leases.RELEASED,
    states.RUNNING: leases.RELEASED,
}
Say = Callable[..., None]


def main() -> None:
    """Send the run that the first line of input describes, until there is more input, or its end.

    What happens is a line of JSON each: `warning`, a text; `stop`, why the training is to end;
    `end`, why not all was sent, or null.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Unbuffered: what comes after the line must be seen by `select`.
    with open(0, "rb", buffering=0, closefd=False) as file:
        ticket = json.loads(file.readline())
    is_over = threading.Event()
    logging.getLogger().handlers[:] = [_ToTraining(is_over)]
    arguments = (ticket["parent"], is_over)
    threading.Thread(target=_wait_for_end, args=arguments, daemon=True).start()
    try:
        problem = Sender(ticket, is_over, _say).run()
    except Exception as error:
        problem = f"{type(error).__name__}: {one_line(error)}"
    _say(end=problem)
    # Requests that hang hold threads that Python would wait for.
    os._exit(0)


def _say(**event: Any) -> None:
    # The training may be gone.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


class _ToTraining(logging.Handler):
    def __init__(self, is_over: threading.Event) -> None:
        super().__init__()
        self._is_over = is_over

    def emit(self, record: logging.LogRecord) -> None:
        # What fails after the training is told as its end.
        if record.levelno >= logging.WARNING and not self._is_over.is_set():
            _say(warning=record.getMessage())


def _wait_for_end(parent: int, is_over: threading.Event) -> None:
    # A process that the training forked may hold the other end of the pipe.
    while os.getppid() == parent and not select.select([0], [], [], 1.0)[0]:
        pass
    is_over.set()


class _Watched:
    """A store that knows when something was sent, and why something was not."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._lock, self._on_their_way, self._is_closed = threading.Lock(), 0, False
        self.arrived = time.monotonic()
        self.problem = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, name: str, data: bytes | Path, check: Check | None = None) -> None:
        """Write an object; see `ArtifactStore`."""
        with self._lock:
            if self._is_closed:
                raise StoreError(f"{self._store.url}: nothing more is sent")
            self._on_their_way += 1
        try:
            self._store.put(name, data, check)
            self.arrived, self.problem = time.monotonic(), ""
        except StoreError as error:
            self.problem = one_line(error)
            raise
        finally:
            with self._lock:
                self._on_their_way -= 1

    def close(self, patience_s: float) -> bool:
        """Send no more objects; return whether none is on its way any more."""
        self._is_closed = True
        deadline = time.monotonic() + patience_s
        while self._on_their_way and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return self._on_their_way == 0


class Sender:
    """Sends one run, from the claim of its lease to its last state."""

    def __init__(self, ticket: dict[str, Any], is_over: threading.Event, say: Say) -> None:
        """Take a run that a process trains; nothing is requested yet.

        Args:
            ticket: `store`, its URL; `run`, the name there; `path`, the run directory; `about`, as
                `about_run` returns it; `take_ended`, whether an ended run of that name goes on;
                `resumes`, whether the training goes on from a checkpoint; optionally `beat_s`,
                `push_s` and `stall_s`.
            is_over: Set when the training has ended.
            say: Called with `warning` or `stop` when there is something to tell the training.
        """
        self._store = _Watched(open_store(ticket["store"]))
        self._ticket, self._is_over, self._say = ticket, is_over, say
        self._run, self._path = str(ticket["run"]), Path(ticket["path"])
        self._beat_s = float(ticket.get("beat_s", BEAT_S))
        self._stall_s = float(ticket.get("stall_s", STALL_S))
        place = f"{socket.gethostname()}:{self._path.absolute()}"
        # An earlier process of the same run here is known by it.
        self._family = f"{socket.gethostname()}-{hashlib.sha256(place.encode()).hexdigest()[:12]}-"
        store, worker = cast(ArtifactStore, self._store), self._family + secrets.token_hex(8)
        self._lease = RunLease(store, self._run, worker)

    def run(self) -> str | None:
        """Send until the training has ended; return why not all was sent, None if all was."""
        problem = self._claim()
        if problem is not None:
            return problem
        store = cast(ArtifactStore, self._store)
        sync = RunSync(
            store,
            self._lease,
            lambda check: RunMirror(store, self._run, self._path, check),
            self._report,
            beat_s=self._beat_s,
            push_s=float(self._ticket.get("push_s", PUSH_S)),
        )
        sync.start()
        with contextlib.suppress(StoreError):
            if not honours_conditions(store, "sync"):
                self._say(
                    warning=f"{store.url}: this server ignores the conditions of writes, so "
                    "nothing keeps two processes from training the same run. Let only one at a "
                    "time write there."
                )
        self._watch(sync)
        return self._finish(sync)

    def _report(self) -> dict[str, Any]:
        return {**self._ticket["about"], **read_report(RunDir(self._path))}

    def _claim(self) -> str | None:
        """Take the lease, however long the store is gone; return why it is not ours."""
        delay_s, is_said, began = 1.0, False, time.monotonic()
        is_over_at: float | None = None
        while True:
            try:
                refusal = self._refusal()
                if refusal is None:
                    return None
                is_over_due = time.monotonic() - began > EXPIRES_S + 2 * _LONGEST_RETRY_S
                if is_over_due or not self._is_predecessor():
                    self._say(stop=refusal, lost=True)
                    return refusal
                problem = "an earlier process of this run still holds its lease"
            except StoreError as error:
                problem = one_line(error)
                if not is_said:
                    self._say(warning=f"{problem}; training goes on, and this is tried again")
                is_said = True
            if self._is_over.is_set():
                is_over_at = is_over_at or time.monotonic()
                if time.monotonic() - is_over_at > self._stall_s:
                    return problem
                time.sleep(min(delay_s, 1.0))
            else:
                self._is_over.wait(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)

    def _refusal(self) -> str | None:
        """Claim the lease; return why another one has the run, None if it is ours."""
        store, run = cast(ArtifactStore, self._store), self._run
        if self._ticket["resumes"]:
            there = newest_step(store, run)
            here = max(RunDir(self._path).checkpoints().steps(), default=0)
            if there is not None and there > here:
                return (
                    f"{store.url} has this run up to step {there:,}, and here is step {here:,}: "
                    "it was trained on elsewhere. Resume that one, or this one with store=null"
                )
        listed = list_leases(store, run.rpartition("/")[0])
        if self._lease.claim(listed, take_ended=self._ticket["take_ended"]):
            return None
        record = self._record()
        state = printable(record.get("state", "unknown"), 20)
        if state != leases.RUNNING:
            return f"{store.url} holds a run {run}, which is {state}; choose another run_dir"
        worker = printable(record.get("worker", "another worker"), 80)
        return f"{store.url}: {worker} has the run {run}"

    def _is_predecessor(self) -> bool:
        record = self._record()
        return record.get("state") == leases.RUNNING and str(record.get("worker")).startswith(
            self._family
        )

    def _record(self) -> dict[str, Any]:
        found = self._store.get(self._lease.name, leases.LARGEST_BYTES)
        return {} if found is None else read_record(found[0])

    def _watch(self, sync: RunSync) -> None:
        """Pass on what happens, until the training has ended or the lease is lost."""
        began, is_asked, is_pushed = time.monotonic(), False, False
        while not self._is_over.wait(_LOOK_S) and not sync.is_lost:
            request = sync.request
            if request is not None and not is_asked:
                is_asked = True
                why = printable(request.get("reason") or "no reason was given", 200)
                self._say(stop=f"stopped by a request in the store: {why}")
            if not is_pushed and time.monotonic() - began > self._beat_s:
                # Others see the run soon, and a mistake that ends it at once is not sent.
                is_pushed = True
                sync.push_soon()
        if sync.is_lost:
            self._say(stop=f"{self._store.url}: another worker has this run", lost=True)

    def _finish(self, sync: RunSync) -> str | None:
        """Send the rest, as long as something arrives now and then."""
        state, reason = last_state(RunDir(self._path))
        if sync.request is not None and state == leases.RELEASED:
            state = leases.CANCELLED
        answers: list[str | None] = []

        def finish() -> None:
            try:
                answers.append(sync.finish(state, LONGEST_END_S, reason=reason))
            except LeaseLostError as error:
                self._say(stop=one_line(error), lost=True)
                answers.append(one_line(error))
            except RunError as error:
                answers.append(one_line(error))

        thread = threading.Thread(target=finish, daemon=True)
        thread.start()
        began = time.monotonic()
        while thread.is_alive():
            thread.join(_LOOK_S)
            now = time.monotonic()
            if now - max(began, self._store.arrived) > self._stall_s or now - began > LONGEST_END_S:
                problem = self._store.problem
                self._release()
                return problem or f"nothing arrived there for {self._stall_s:.0f} s"
        return answers[0]

    def _release(self) -> None:
        """Let go of the lease if the store answers that at least; else it expires."""
        if not self._store.close(_RELEASE_S):
            # The next worker must not begin before it has arrived.
            return

        def beat() -> None:
            with contextlib.suppress(RunError, OSError):
                self._lease.beat(leases.RELEASED, **self._report())

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        thread.join(_RELEASE_S)


def last_state(run: RunDir) -> tuple[str, str]:
    """Return the state that a lease gets when nobody trains a run any more, and why it ended.

    The run of a training that was killed is one that somebody may go on with; one that was
    discarded has failed.
    """
    status = run.read_status()
    state = _IN_STORE.get(str(status.get("state")), leases.FAILED)
    return state, printable(status.get("message", ""), 500)

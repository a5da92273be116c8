"""Keeps the copy of a run in a store up to date while another process trains it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import OutsideError
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.store.contract import ArtifactStore, StoreError
from rlzoo_plus.store.lease import EXPIRES_S, RELEASED, RUNNING, LeaseLostError, RunLease
from rlzoo_plus.store.mirror import RunMirror, Sent

log = logging.getLogger(__name__)
# A beat renews the lease and carries the progress; a push sends all that changed.
BEAT_S, PUSH_S = 30.0, 300.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 10.0


class RunSync:
    """Beats and pushes in two threads, so that neither a slow store nor a large push is waited for.

    Errors of the store are logged, and tried again; only a lost lease ends the work.
    """

    def __init__(
        self,
        store: ArtifactStore,
        lease: RunLease,
        make_mirror: Callable[[Callable[[], None]], RunMirror],
        report: Callable[[], dict[str, Any]],
        *,
        beat_s: float = BEAT_S,
        push_s: float = PUSH_S,
        expires_s: float = EXPIRES_S,
    ) -> None:
        """Take a lease that was claimed just now; nothing is requested yet.

        Args:
            store: The store.
            lease: Of the run.
            make_mirror: Makes the mirror of the run, given what it calls before it sends.
            report: Returns the progress that a beat carries, as plain data.
            beat_s: Time between beats [s].
            push_s: Time between pushes [s].
            expires_s: When others may take the run after the last beat [s].
        """
        self._store, self._lease, self._report = store, lease, report
        self._mirror = make_mirror(self._check)
        self._beat_s, self._push_s, self._expires_s = beat_s, push_s, expires_s
        self._beaten = time.monotonic()
        self._is_over, self._push_now = threading.Event(), threading.Event()
        # `finish` does what the threads do, too.
        self._pushing, self._beating = threading.Lock(), threading.Lock()
        self._problem: str | None = None
        self._threads = [
            threading.Thread(target=self._run_beats, name="beats", daemon=True),
            threading.Thread(target=self._run_pushes, name="pushes", daemon=True),
        ]
        self.is_lost = False
        self.sent_objects = self.sent_bytes = 0

    @property
    def request(self) -> dict[str, Any] | None:
        """What another process asked of this run; see `lease.ask`."""
        return self._lease.request

    def start(self) -> None:
        """Begin to beat and to push."""
        for thread in self._threads:
            thread.start()

    def push_soon(self) -> None:
        """Push without waiting for the time to come."""
        self._push_now.set()

    def finish(self, state: str, patience_s: float, **more: Any) -> str | None:
        """Push the rest and end the lease; return why something was not sent, None if all was.

        Args:
            state: The last state, see `rlzoo_plus.store.lease`.
            patience_s: How long to try while requests fail [s].
            more: For the last beat, beside the progress.

        Raises:
            LeaseLostError: Another worker has the run.
        """
        deadline = time.monotonic() + patience_s
        self._push_now.set()
        try:
            problem = self._patiently(self._push, deadline)
            # A run is only told as ended where everything of it is there.
            end = state if problem is None else RELEASED
            self._is_over.set()
            self._threads[0].join(max(deadline - time.monotonic(), 0.1))
            unsaid = self._patiently(lambda: self._beat(end, **more), deadline)
            return problem or unsaid
        finally:
            self._is_over.set()
            self._push_now.set()

    def _patiently(self, act: Callable[[], object], deadline: float) -> str | None:
        delay_s = _FIRST_RETRY_S
        while True:
            try:
                act()
                return None
            except (StoreError, OutsideError, DamagedFolderError, OSError) as error:
                if time.monotonic() + delay_s > deadline or isinstance(error, OutsideError):
                    return one_line(error)
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)

    def _run_beats(self) -> None:
        while not self._is_over.wait(self._beat_s) and not self.is_lost:
            self._try(self._beat)

    def _run_pushes(self) -> None:
        while not self._is_over.is_set() and not self.is_lost:
            self._push_now.wait(self._push_s)
            self._push_now.clear()
            if not self._is_over.is_set():
                self._try(self._push)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LeaseLostError as error:
            log.error("%s: nothing more is sent", error)
            self.is_lost = True
        except (StoreError, OutsideError, DamagedFolderError, OSError) as error:
            problem = one_line(error)
            if problem != self._problem:
                log.warning("%s; training goes on, and this is tried again", problem)
            self._problem = problem

    def _beat(self, state: str = RUNNING, **more: Any) -> None:
        report = {**self._report(), **more}
        with self._beating:
            began = time.monotonic()
            self._lease.beat(state, **report)
            self._beaten = began

    def _push(self) -> Sent:
        with self._pushing:
            sent = self._mirror.push()
        self.sent_objects += sent.objects
        self.sent_bytes += sent.size
        return sent

    def _check(self) -> None:
        """Let nothing be sent that the next worker of the run might have replaced by now."""
        if self.is_lost:
            raise LeaseLostError(f"{self._store.url}: another worker has this run")
        if time.monotonic() - self._beaten > self._expires_s / 2:
            raise StoreError(f"{self._store.url}: the lease could not be renewed for a while")

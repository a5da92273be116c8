"""Keeps the copy of a run in a store up to date while another process trains it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

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
# What may go well at the next attempt.
_AGAIN = (StoreError, DamagedFolderError)
T = TypeVar("T")
# Of the beats whose request failed.
_BEATS_AGAIN = 3


def patiently(
    act: Callable[[], T],
    patience_s: float,
    give_up: Callable[[], bool] = lambda: False,
    errors: tuple[type[Exception], ...] = _AGAIN,
) -> T:
    """Do something that needs a store, again and again while requests fail.

    Args:
        act: What to do.
        patience_s: For how long [s].
        give_up: Returns whether not to try again.
        errors: Those after which it is tried again; that of the last attempt is raised.
    """
    deadline, delay_s = time.monotonic() + patience_s, _FIRST_RETRY_S
    while True:
        try:
            return act()
        except errors:
            if time.monotonic() + delay_s > deadline or give_up():
                raise
        time.sleep(delay_s)
        delay_s = min(2 * delay_s, _LONGEST_RETRY_S)


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
        self._beaten = _now()
        self._is_over, self._push_now = threading.Event(), threading.Event()
        # `finish` does what the threads do, too.
        self._pushing, self._beating = threading.Lock(), threading.Lock()
        # What fails now: each is told once, until it has worked again.
        self._failing: set[str] = set()
        self._threads = [
            threading.Thread(target=self._run_beats, name="beats", daemon=True),
            threading.Thread(target=self._run_pushes, name="pushes", daemon=True),
        ]
        self._stops_at = math.inf
        self.is_lost = False
        self.sent_objects = self.sent_bytes = 0
        # Why `finish` gave up, None if it did not.
        self.error: Exception | None = None

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

    def finish(
        self, state: str, patience_s: float, left_s: float = math.inf, **more: Any
    ) -> str | None:
        """Push the rest and end the lease; return why something was not sent, None if all was.

        Args:
            state: The last state, see `rlzoo_plus.store.lease`.
            patience_s: How long to try while requests fail [s].
            left_s: When nothing more may be sent but the end of the lease, even if all goes
                well [s].
            more: For the last beat, beside the progress.

        Raises:
            LeaseLostError: Another worker has the run.
        """
        self._stops_at = time.monotonic() + left_s
        deadline = time.monotonic() + min(patience_s, left_s)
        try:
            problem = self._patiently(lambda: self._push(deadline), deadline)
            # A run is only told as ended where everything of it is there.
            end = state if problem is None else RELEASED
            self._is_over.set()
            with self._held(self._pushing, deadline) as is_quiet:
                if not is_quiet:
                    # The next worker must not begin while something of ours is still on its way.
                    return f"{problem or 'a push is not done yet'}: the lease is left to expire"
                unsaid = self._patiently(lambda: self._beat(end, **more), deadline)
            return problem or unsaid
        finally:
            self._is_over.set()
            self._push_now.set()

    def _patiently(self, act: Callable[[], object], deadline: float) -> str | None:
        try:
            patiently(act, deadline - time.monotonic(), errors=(*_AGAIN, OSError))
            return None
        except (*_AGAIN, OutsideError, OSError) as error:
            self.error = self.error or error
            return one_line(error)

    @contextmanager
    def _held(self, lock: threading.Lock, deadline: float) -> Iterator[bool]:
        left_s = min(max(deadline - time.monotonic(), 0.1), threading.TIMEOUT_MAX)
        is_ours = lock.acquire(timeout=left_s)
        try:
            yield is_ours
        finally:
            if is_ours:
                lock.release()

    def _run_beats(self) -> None:
        pause_s = self._beat_s
        while not self._is_over.wait(pause_s) and not self.is_lost:
            is_done = self._try("beat", self._beat)
            pause_s = self._beat_s if is_done else self._beat_s / _BEATS_AGAIN

    def _run_pushes(self) -> None:
        while not self._is_over.is_set() and not self.is_lost:
            self._push_now.wait(self._push_s)
            self._push_now.clear()
            if not self._is_over.is_set():
                self._try("push", self._push)

    def _try(self, name: str, act: Callable[[], object]) -> bool:
        try:
            act()
            self._failing.discard(name)
            return True
        except LeaseLostError as error:
            log.error("%s: nothing more is sent", error)
            self.is_lost = True
        except (StoreError, OutsideError, DamagedFolderError, OSError) as error:
            if name not in self._failing:
                self._failing.add(name)
                log.warning("%s; training goes on, and this is tried again", one_line(error))
        return False

    def _beat(self, state: str = RUNNING, **more: Any) -> None:
        report = {**self._read_report(), **more}
        with self._beating:
            if state == RUNNING and self._is_over.is_set():
                # It was waiting here while `finish` ended the lease.
                return
            began = _now()
            self._lease.beat(state, **report)
            self._beaten = began

    def _read_report(self) -> dict[str, Any]:
        try:
            return self._report()
        except Exception:
            # Without a beat another worker would take the run.
            log.exception("the progress of the run cannot be read")
            return {}

    def _push(self, deadline: float = math.inf) -> Sent:
        with self._held(self._pushing, deadline) as is_ours:
            if not is_ours:
                raise StoreError(f"{self._store.url}: a push is not done yet")
            sent = self._mirror.push()
        self.sent_objects += sent.objects
        self.sent_bytes += sent.size
        return sent

    def _check(self) -> None:
        """Let nothing be sent that the next worker of the run might have replaced by now."""
        if self.is_lost:
            raise LeaseLostError(f"{self._store.url}: another worker has this run")
        if self._is_over.is_set():
            raise StoreError(f"{self._store.url}: the lease has been given back")
        if time.monotonic() > self._stops_at:
            raise StoreError(f"{self._store.url}: there is no time left to send more")
        if _now() - self._beaten > self._expires_s / 2:
            raise StoreError(f"{self._store.url}: the lease could not be renewed for a while")


def _now() -> float:
    """Return a time that goes on while the machine sleeps, where the system has one [s]."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)

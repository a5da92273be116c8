"""A worker: takes runs of a sweep in a store, restores them, trains them, and sends what comes."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import OutsideError
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import EXIT_BUSY, EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, ConfigError
from rlzoo_plus.store.attempts import Account
from rlzoo_plus.store.code import fetch_code
from rlzoo_plus.store.contract import ArtifactStore, StoreError, honours_conditions
from rlzoo_plus.store.lease import (
    CANCELLED,
    EXPIRES_S,
    FAILED,
    FINISHED,
    KILL,
    RELEASED,
    LeaseLostError,
    reason_in,
)
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import BEAT_S, PUSH_S, RunSync, patiently
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Launcher
from rlzoo_plus.sweeps.launchers.scheduler import POLL_S, Scheduler, stop_code
from rlzoo_plus.sweeps.states import explain_end
from rlzoo_plus.workers.claims import Claims, Look
from rlzoo_plus.workers.host import Host
from rlzoo_plus.workers.restore import LockedError, beating, restore_run
from rlzoo_plus.workers.task import Rules, Taken, Task

log = logging.getLogger(__name__)
FOLDER = Path("outputs") / "workers"
_CODE_FOLDER = ".code"
_TRY_AGAIN_S, _MOST_TRIES = 60.0, 3
# How a process ends that somebody else has stopped, before or after it took the signal itself.
_FROM_OUTSIDE = (EXIT_SIGTERM, EXIT_SIGINT, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
# Of the time that a machine is there after its notice, what is left for this process to end [s].
_END_LEFT_S = 3.0
# The part of the rest of a share in which a run may be sent: the last request may take longer.
_PART_TO_SEND = 0.75
_LOST = "is lost: another worker has it now, or it was ended"


class Wait(StrEnum):
    """What a worker does that finds no run to take."""

    NO = "no"  # it ends
    OTHERS = "others"  # it waits until the runs of other workers have ended
    ALWAYS = "always"  # it waits for new runs, until a signal


@dataclass(frozen=True)
class Times:
    """How often a worker acts, and how long it tries."""

    beat_s: float = BEAT_S  # time between the beats of a run [s]
    push_s: float = PUSH_S  # time between its pushes [s]
    look_s: float = 5.0  # time between looks for runs that nobody trains [s]
    # When a lease without a beat may be taken; the same for all workers [s].
    expires_s: float = EXPIRES_S
    # How long requests are tried again before a run is restored, and when it has ended [s].
    patience_s: float = 600.0
    stop_patience_s: float = 60.0  # the same after a signal [s]


class Worker(Scheduler[Taken]):
    """Trains runs until none is left; requests to the store are made in other threads alone."""

    def __init__(
        self,
        store: ArtifactStore,
        sweep: str,
        folder: Path,
        launcher: Launcher,
        *,
        rules: Rules | None = None,
        times: Times | None = None,
        wait: Wait = Wait.OTHERS,
        host: Host | None = None,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        """Name a sweep; nothing is requested yet.

        Args:
            store: The store.
            sweep: The sweep's name there.
            folder: Where the runs are on this machine; several workers may share it.
            launcher: Where the jobs run, and how many at once.
            rules: What is taken.
            times: How often it acts.
            wait: What it does if there is no run to take.
            host: The machine, None for one that costs nothing and stays.
            tell: Prints a line.
        """
        super().__init__(launcher)
        self._store, self._sweep, self._folder = store, sweep, folder
        self._times, self._wait, self._tell = times or Times(), wait, tell
        self._host = host or Host()
        self.name, only = self._host.worker, self._host.only
        self._claims = Claims(
            *(store, sweep, folder, self.name, rules or Rules(), self._times.expires_s),
            only=only,
            account=self._account,
        )
        # Since when it waits for the only run that it may take.
        self._waits_since = None if only is None else time.monotonic()
        self._taken: dict[str, Taken] = {}
        self._ready: list[Taken] = []
        self._follows_notice = False
        self._n_working = self._n_ended = self._n_failed = self._n_signals = 0
        # What threads found out; the loop acts on it.
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # The last look, None once it says no longer what is left.
        self._look: Look | None = None
        self._is_looking, self._look_at = False, 0.0
        self._blind_since: float | None = None
        self._told = ""

    def run(self) -> int:
        """Train runs; return 0, 1 if one failed or was refused, 75 or 130 after a signal."""
        self._check_store()
        self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        is_left = self._look is not None and self._look.n_refused > 0
        return EXIT_FAILED if self._n_failed or is_left else 0

    def run_rounds(self) -> None:
        """Work until nothing is left; then wait for what is still being sent."""
        super().run_rounds()
        n_signals = self._n_signals
        while self._n_working and self._n_signals == n_signals:
            self.before_round()
            time.sleep(POLL_S / 4)

    def before_round(self) -> None:
        """Act on what threads found out, and look for runs to take if it is time."""
        while self._n_working:
            try:
                act = self._news.get_nowait()
            except queue.Empty:
                break
            self._n_working -= 1
            act()
        if self.stop_signal is not None:
            while self._ready:
                self._end(self._ready.pop(), RELEASED)
            return
        free = self.launcher.slots - sum(not each.is_ending for each in self._taken.values())
        if free > 0 and not self._is_looking and time.monotonic() >= self._look_at:
            self._is_looking = True
            self._work(partial(self._find, free, frozenset(self._taken), self._n_ended))

    def is_asked_to_stop(self) -> bool:
        """Return whether the machine is being taken away."""
        return self._host.is_noticed

    def after_round(self) -> None:
        """Obey what others asked of the runs; end those of others, and those that cost too much."""
        for each in self.active:
            asked = each.job.wanted(self._host.left_s)
            if asked is None or each.job.asked in (KILL, asked):
                continue
            each.job.asked = asked
            if asked == KILL:
                each.handle.kill()
            else:
                each.handle.stop()

    def next_job(self) -> Taken | None:
        """Return a run that is restored."""
        return self._ready.pop(0) if self._ready else None

    def spec_of(self, job: Taken) -> JobSpec:
        """Return a run as its launcher takes it; from now on it is kept up to date in the store."""
        task, times = job.task, self._times
        job.sync = RunSync(
            self._store,
            job.lease,
            lambda check: RunMirror(self._store, self._name(task), task.run_dir.path, check),
            task.report,
            beat_s=times.beat_s,
            push_s=times.push_s,
            expires_s=times.expires_s,
        )
        job.sync.start()
        return task.spec

    def on_refused(self, job: Taken, error: Exception) -> None:
        """Release a run that could not be started: that is this machine's fault, not the run's."""
        log.warning("%s cannot be started here: %s", job.task.key, one_line(error))
        self._release(job)

    def on_end(self, job: Taken, end: JobEnd, ran_s: float) -> None:
        """Judge a run by its directory first, then by what was asked, then by its process."""
        assert job.sync is not None
        request = job.sync.request
        details: dict[str, Any] = {"code": end.code, "limit": end.limit}
        if job.sync.is_lost:
            self._forget(job, _LOST)
        elif job.task.is_finished(end):
            self._end(job, FINISHED, **details)
        elif request is not None:
            self._end(job, CANCELLED, reason=reason_in(request), **details)
        elif job.ends_by_budget(end):
            self._end(job, CANCELLED, reason=job.lease.account.reason, **details)
        elif (end.code == EXIT_BUSY and job.task.job is not None) or (
            self.stop_signal is not None and end.limit is None and end.code not in (1, 2)
        ):
            self._claims.put_off(job.task.key, self._times.look_s)
            self._end(job, RELEASED, **details)
        elif end.limit is None and end.code in _FROM_OUTSIDE:
            log.warning("%s was %s", job.task.key, explain_end(end, job.task.run_dir))
            self._release(job, **details)
        else:
            reason = explain_end(end, job.task.run_dir)
            self._end(job, FAILED, reason=reason, **details)

    def has_more(self) -> bool:
        """Return whether runs may follow, or something is still being sent."""
        if self._n_working or self._ready or self._look is None:
            return True
        look = self._look
        if self._host.only is None:
            waits = self._wait is Wait.ALWAYS or (self._wait is Wait.OTHERS and look.n_elsewhere)
        else:
            # A machine that is paid for waits for no one who trains its run; but a worker that is
            # gone, perhaps the one before on this machine's behalf, gives no sign until it expires.
            waits = look.n_elsewhere > look.n_alive
        if waits and not look.n_open:
            waiting = f"waiting: other workers have {counted(look.n_elsewhere, 'run')}"
            waiting = waiting if look.n_elsewhere else "waiting for new runs"
            if waiting != self._told:
                self._tell(waiting)
            self._told = waiting
        return bool(waits or look.n_open)

    def _check_store(self) -> None:
        patience = partial(patiently, patience_s=self._times.stop_patience_s)
        if self._wait is not Wait.ALWAYS and not patience(self._claims.has_jobs):
            raise ConfigError(f"{self._store.url} has no sweep {printable(self._sweep)!r}.")
        if patience(lambda: honours_conditions(self._store, self.name)):
            return
        where = f"{self._store.url} ignores the conditions of a write, so that"
        if patience(self._claims.has_others):
            raise ConfigError(
                f"{where} only one worker at a time may be at work, and another one is. Wait until "
                "it has ended, or use another store."
            )
        log.warning("%s only one worker at a time may be at work: start no other one", where)

    # In threads; each returns what the loop is to do then.

    def _work(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do something in a thread, and what it returns in the loop."""
        self._n_working += 1

        def run() -> None:
            try:
                act = work()
            except BaseException as error:
                act = partial(_fail, error)
            self._news.put(act)

        threading.Thread(target=run, name="worker", daemon=True).start()

    def _find(self, most: int, taken: frozenset[str], n_ended: int) -> Callable[[], None]:
        try:
            return partial(self._on_look, self._claims.look(most, taken), n_ended)
        except StoreError as error:
            return partial(self._on_blind, error)

    def _prepare(self, taken: Taken) -> Callable[[], None]:
        patience_s, key = self._patience_s(taken), taken.task.key
        try:
            with beating(taken.lease, self._times.beat_s):
                step = patiently(partial(self._bring, taken), patience_s, self._is_stopping)
            report = taken.task.report()
            patiently(lambda: taken.lease.beat(**report), patience_s, self._is_stopping)
            return partial(self._on_prepared, taken, step)
        except LeaseLostError:
            return partial(self._forget, taken, _LOST)
        except LockedError as error:
            problem: Exception = error
            self._claims.put_off(key, self._times.look_s)
        except (StoreError, OSError) as error:
            problem = error
            self._claims.put_off(key, _TRY_AGAIN_S, at_most=_MOST_TRIES)
        except OutsideError as error:
            problem = error
            self._claims.leave(key)
        except DamagedFolderError as error:
            reason = f"damaged in the store: {one_line(error)}"
            return partial(self._end, taken, FAILED, reason=reason)
        log.warning("%s is left to other workers for now: %s", key, one_line(problem))
        return partial(self._end, taken, RELEASED)

    def _bring(self, taken: Taken) -> int | None:
        """Bring what a run needs to this machine; return the step it goes on from."""
        task = taken.task
        if task.code is not None:
            code = fetch_code(self._store, self._sweep, task.code, self._folder / _CODE_FOLDER)
            taken.task = task.with_code(code)
        if task.job is None:
            return None
        return restore_run(self._store, self._name(task), self._folder, task.run_dir.path)

    def _finish(self, taken: Taken, state: str, details: dict[str, Any]) -> Callable[[], None]:
        patience_s = self._patience_s(taken)
        try:
            if taken.sync is not None:
                problem = taken.sync.finish(state, patience_s, self._left_s(taken), **details)
            else:
                problem = None
                more = {**taken.task.report(), **details}
                patiently(lambda: taken.lease.beat(state, **more), patience_s, self._is_stopping)
        except LeaseLostError:
            return partial(self._forget, taken, _LOST)
        except StoreError as error:
            problem = one_line(error)
        if problem is not None:
            self._claims.put_off(taken.task.key, _TRY_AGAIN_S, at_most=_MOST_TRIES)
            log.warning(
                "%s: not all of it was sent: %s. It is in %s.",
                *(taken.task.key, problem, taken.task.run_dir.path),
            )
        reason = details.get("reason")
        return partial(self._forget, taken, f"{state}: {reason}" if reason else state)

    def _is_stopping(self) -> bool:
        return self.stop_signal is not None

    def _patience_s(self, taken: Taken) -> float:
        """Return how long requests are tried again [s]."""
        stops = self._is_stopping()
        patience_s = self._times.stop_patience_s if stops else self._times.patience_s
        # A machine that is taken away needs nothing else any more.
        left_s = self._left_s(taken)
        return left_s if self._host.is_noticed else min(patience_s, left_s)

    def _left_s(self, taken: Taken) -> float:
        """Return how long a run may be sent [s]: as long as its machine and its share last."""
        share_s = _PART_TO_SEND * taken.lease.account.left_s
        return max(min(self._host.left_s - _END_LEFT_S, share_s), 0.0)

    def _account(self, task: Task) -> Account:
        return Account(self.name, self._host.machine, task.max_usd, self._waits_since)

    # In the loop.

    def _on_look(self, look: Look, n_ended: int) -> None:
        self._is_looking, self._blind_since = False, None
        for task, lease in look.claimed:
            taken = self._taken[task.key] = Taken(task, lease)
            if self._is_stopping():
                self._end(taken, RELEASED)
            else:
                self._work(partial(self._prepare, taken))
        # What has ended meanwhile may have changed what is left.
        is_news = n_ended == self._n_ended and not look.claimed
        self._look = look if is_news else None
        self._look_at = time.monotonic() + (self._times.look_s if is_news else 0.0)

    def _on_blind(self, error: StoreError) -> None:
        now = time.monotonic()
        self._is_looking, self._look_at = False, now + self._times.look_s
        if self._blind_since is None:
            self._blind_since = now
            log.warning("%s; this is tried again", error)
        if not self._taken and now - self._blind_since > self._times.patience_s:
            raise error

    def _on_prepared(self, taken: Taken, step: int | None) -> None:
        if self._is_stopping():
            self._end(taken, RELEASED)
        elif taken.lease.request is not None:
            self._end(taken, CANCELLED, reason=reason_in(taken.lease.request))
        elif taken.lease.account.must_stop:
            self._end(taken, CANCELLED, reason=taken.lease.account.reason)
        else:
            taken.lease.account.step = step or 0
            self._ready.append(taken)
            where = "begins" if step is None else f"goes on from step {step:,}"
            self._tell(f"{taken.task.key} {where}")

    def _end(self, taken: Taken, state: str, **details: Any) -> None:
        """Send the rest of a run and end its lease, in a thread."""
        taken.is_ending = True
        known = {name: value for name, value in details.items() if value is not None}
        self._n_failed += state == FAILED
        self._work(partial(self._finish, taken, state, known))

    def _release(self, taken: Taken, **details: Any) -> None:
        """Leave a run to any worker after a while; to others alone if that has not helped often."""
        self._claims.put_off(taken.task.key, _TRY_AGAIN_S, at_most=_MOST_TRIES)
        self._end(taken, RELEASED, **details)

    def _forget(self, taken: Taken, how: str) -> None:
        """Be done with a run."""
        del self._taken[taken.task.key]
        self._n_ended += 1
        self._waits_since = None if self._waits_since is None else time.monotonic()
        self._look, self._look_at = None, 0.0
        self._tell(f"{taken.task.key} {how}")

    def _name(self, task: Task) -> str:
        return f"{self._sweep}/{task.key}"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._host.is_noticed and not self._follows_notice:
            # A machine that is taken away sends SIGTERM, too.
            self._follows_notice = True
            return
        self._n_signals += 1
        super()._on_signal(number, frame)


def _fail(error: BaseException) -> None:
    raise error

"""Runs the jobs of a sweep: as many at once as there is room for, each on its own."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.infra.job import JobEnd, JobSpec, Limits
from rlzoo_plus.infra.launcher import Handle, Launcher
from rlzoo_plus.infra.stop_signals import stop_signals_go_to
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.job import SweepJob
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.presence import Presence
from rlzoo_plus.sweeps.states import JobState, explain_end, log_file

TARGET = "rlzoo_plus.commands.train_job:run_job"
# What a job returns whose directory another process trains in.
EXIT_BUSY = 73
EXIT_SIGINT, EXIT_SIGTERM, EXIT_FAILED = 130, 75, 1
_POLL_S = 0.2
_LOOK_AGAIN_S = 1.0


@dataclass
class Entry:
    """A job in the hands of a controller.

    Attributes:
        job: The job.
        state: What it does.
        reason: Why it failed.
        handle: Its process, while it runs here.
        is_elsewhere: Whether another process trains in its directory.
        look_at: When it is looked at again, in `time.monotonic` [s].
        ran_s: Time it ran here [s]; 0 for what was done already.
    """

    job: SweepJob
    state: JobState = JobState.WAITING
    reason: str = ""
    handle: Handle | None = None
    is_elsewhere: bool = False
    look_at: float = 0.0
    started: float = 0.0
    ran_s: float = 0.0


class Controller:
    """Runs jobs until all are done or have failed, or until it is asked to stop."""

    def __init__(
        self,
        book: Ledger,
        jobs: list[SweepJob],
        launcher: Launcher,
        ended: Callable[[Entry], None] = lambda entry: None,
        tick: Callable[[], None] = lambda: None,
        target: str = TARGET,
    ) -> None:
        """Take jobs; none is started yet.

        Args:
            book: The sweep's ledger.
            jobs: What is to be run; what is done already is not run again.
            launcher: Where.
            ended: Called with each job that ended, and with what was done already.
            tick: Called some times a second.
            target: What a job's process calls.
        """
        self.book = book
        self.launcher = launcher
        self.entries = [Entry(job) for job in jobs]
        # Each poll must cost the same, however many jobs wait.
        self.counts = Counter({JobState.WAITING: len(jobs)})
        self.running: list[Entry] = []
        self.elsewhere: deque[Entry] = deque()
        self._waiting: deque[Entry] = deque()
        self._news = book.follow()
        self._failed_there: dict[str, str] = {}
        self.stop_signal: int | None = None
        self._ended, self._tick, self._target = ended, tick, target
        self._kill = False

    def run(self) -> int:
        """Run the jobs; return 0, 1 if one failed, 75 or 130 if it was stopped."""
        with stop_signals_go_to(self._on_signal):
            try:
                with Presence(self.book.sweep) as presence:
                    self._work(presence)
            finally:
                # Only an error of ours leaves jobs behind.
                for entry in self.running:
                    entry.handle.kill()  # type: ignore[union-attr]
        if self.stop_signal is not None:
            return EXIT_SIGINT if self.stop_signal == signal.SIGINT else EXIT_SIGTERM
        is_failed = any(entry.state is JobState.FAILED for entry in self.entries)
        return EXIT_FAILED if is_failed else 0

    def _work(self, presence: Presence) -> None:
        told = False
        for entry in self.entries:
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            else:
                self._waiting.append(entry)
            if self.stop_signal is not None:
                break
        while self._goes_on():
            if self.stop_signal is None and presence.is_asked_to_stop():
                self.stop_signal = signal.SIGTERM
            if self.stop_signal is None:
                self._start_some()
            elif not told:
                told = True
                for entry in self.running:
                    entry.handle.stop()  # type: ignore[union-attr]
            if self._kill:
                for entry in self.running:
                    entry.handle.kill()  # type: ignore[union-attr]
            self._collect()
            self._tick()
            handles = [entry.handle for entry in self.running if entry.handle is not None]
            if self._goes_on():
                self.launcher.wait(handles, _POLL_S)

    def _goes_on(self) -> bool:
        waits = bool(self._waiting or self.elsewhere)
        return bool(self.running) or (waits and self.stop_signal is None)

    def _start_some(self) -> None:
        while len(self.running) < self.launcher.slots and self.stop_signal is None:
            entry = self._next()
            if entry is None:
                return
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            elif entry.job.run_dir.lock.is_held_elsewhere():
                self._leave_to_others(entry)
            elif reason := self._failed_elsewhere(entry):
                self._become(entry, JobState.FAILED)
                entry.reason = reason
                self._ended(entry)
            else:
                self._submit(entry)

    def _next(self) -> Entry | None:
        """Return a job whose turn it is; one that runs elsewhere is looked at now and then."""
        # All wait equally long, so that the first is due first.
        if self.elsewhere and self.elsewhere[0].look_at <= time.monotonic():
            entry = self.elsewhere.popleft()
        elif self._waiting:
            entry = self._waiting.popleft()
        else:
            return None
        entry.is_elsewhere = False
        return entry

    def _failed_elsewhere(self, entry: Entry) -> str | None:
        """Return why another controller's attempt failed while this one worked."""
        for record in self._news.new():
            key, event = record.get("job"), record.get("event")
            if not isinstance(key, str):
                continue
            if event == ledger.FAILED:
                reason = record.get("reason") or "failed in another process"
                self._failed_there[key] = printable(reason)
            else:
                self._failed_there.pop(key, None)
        return self._failed_there.get(entry.job.key)

    def _leave_to_others(self, entry: Entry) -> None:
        entry.is_elsewhere = True
        entry.look_at = time.monotonic() + _LOOK_AGAIN_S
        self.elsewhere.append(entry)

    def _submit(self, entry: Entry) -> None:
        job = entry.job
        entry.started = time.monotonic()
        self.book.write(ledger.STARTED, job)
        try:
            job.check_place()
            entry.handle = self.launcher.submit(job_spec(job, self._target))
            self._become(entry, JobState.RUNNING)
            self.running.append(entry)
        except (OSError, EOFError) as error:
            self._end(entry, JobState.FAILED, f"cannot be started: {error}")
        except ConfigError as error:
            self._end(entry, JobState.FAILED, str(error))

    def _collect(self) -> None:
        for entry in list(self.running):
            assert entry.handle is not None
            end = entry.handle.poll()
            if end is not None:
                entry.handle = None
                self.running.remove(entry)
                self._judge(entry, end)

    def _judge(self, entry: Entry, end: JobEnd) -> None:
        entry.ran_s = time.monotonic() - entry.started
        if entry.job.is_finished():
            self._end(entry, JobState.DONE)
        elif end.code == EXIT_BUSY:
            self._become(entry, JobState.WAITING)
            self._leave_to_others(entry)
        elif self.stop_signal is not None and end.limit is None and end.code not in (1, 2):
            self._become(entry, JobState.WAITING)
            self.book.write(ledger.STOPPED, entry.job, code=end.code)
        else:
            self._end(entry, JobState.FAILED, explain_end(end, entry.job), code=end.code)

    def _end(self, entry: Entry, state: JobState, reason: str = "", **details: Any) -> None:
        self._become(entry, state)
        entry.reason = reason
        if state is JobState.FAILED:
            self.book.write(ledger.FAILED, entry.job, reason=reason, **details)
        elif entry.ran_s:
            self.book.write(ledger.DONE, entry.job, seconds=round(entry.ran_s, 3))
        self._ended(entry)

    def _become(self, entry: Entry, state: JobState) -> None:
        self.counts[entry.state] -= 1
        self.counts[state] += 1
        entry.state = state

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._kill = self.stop_signal is not None
        self.stop_signal = self.stop_signal or number


def job_spec(job: SweepJob, target: str) -> JobSpec:
    """Return a job as a launcher takes it."""
    infra = job.config.infra
    minutes = infra.time_limit_minutes
    data = {"config": job.config.model_dump(mode="json"), "command": job.command}
    limits = Limits(infra.memory_gib, None if minutes is None else 60.0 * minutes)
    return JobSpec(job.title, target, data, log_file(job.run_dir), limits)

"""Runs the jobs of a sweep: as many at once as there is room for, each on its own."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.launcher import EXIT_BUSY, EXIT_FAILED, JobEnd, JobSpec, Launcher, Limits
from rlzoo_plus.infra.scheduler import Scheduler, stop_code
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.job import SweepJob
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.presence import Presence
from rlzoo_plus.sweeps.states import JobState, explain_end, log_file

TARGET = "rlzoo_plus.runs.job:run_job"
_LOOK_AGAIN_S = 1.0


@dataclass
class Entry:
    """A job in the hands of a controller.

    Attributes:
        job: The job.
        state: What it does.
        reason: Why it failed.
        look_at: When it is looked at again if another process trains in its directory, in
            `time.monotonic` [s].
        ran_s: Time it ran here [s]; 0 for what was done already.
    """

    job: SweepJob
    state: JobState = JobState.WAITING
    reason: str = ""
    look_at: float = 0.0
    ran_s: float = 0.0


class Controller(Scheduler[Entry]):
    """Runs jobs until all are done or have failed, or until it is asked to stop."""

    def __init__(
        self,
        book: Ledger,
        jobs: list[SweepJob],
        launcher: Launcher,
        ended: Callable[[Entry], None] = lambda entry: None,
        tick: Callable[[], None] = lambda: None,
        target: str = TARGET,
        *,
        takes_signals: bool = True,
    ) -> None:
        """Take jobs; none is started yet.

        Args:
            book: The sweep's ledger.
            jobs: What is to be run; what is done already is not run again.
            launcher: Where.
            ended: Called with each job that ended, and with what was done already.
            tick: Called some times a second.
            target: What a job's process calls.
            takes_signals: See `Scheduler`.
        """
        super().__init__(launcher, takes_signals=takes_signals)
        self.book = book
        self.entries = [Entry(job) for job in jobs]
        # Each poll must cost the same, however many jobs wait.
        self.counts = Counter({JobState.WAITING: len(jobs)})
        self.elsewhere: deque[Entry] = deque()
        self._waiting: deque[Entry] = deque()
        self._news = book.follow()
        self._failed_there: dict[str, str] = {}
        self._ended, self._tick, self._target = ended, tick, target

    @property
    def running(self) -> list[Entry]:
        """The jobs that run here."""
        return [each.job for each in self.active]

    def run(self) -> int:
        """Run the jobs; return 0, 1 if one failed, 75 or 130 if it was stopped."""
        with Presence(self.book.sweep) as self._presence:
            self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        is_failed = any(entry.state is JobState.FAILED for entry in self.entries)
        return EXIT_FAILED if is_failed else 0

    def before_loop(self) -> None:
        """Tell what is done already."""
        for entry in self.entries:
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            else:
                self._waiting.append(entry)
            if self.stop_signal is not None:
                break

    def is_asked_to_stop(self) -> bool:
        """Tell whether `sweep cancel` was called."""
        return self._presence.is_asked_to_stop()

    def after_round(self) -> None:
        """Let the caller show how far it is."""
        self._tick()

    def has_more(self) -> bool:
        """Tell whether jobs wait, or run in other processes."""
        return bool(self._waiting or self.elsewhere)

    def next_job(self) -> Entry | None:
        """Return a job that nobody has done, tried or begun meanwhile."""
        while self.stop_signal is None and (entry := self._next()) is not None:
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            elif entry.job.run_dir.lock.is_held_elsewhere():
                self._leave_to_others(entry)
            elif reason := self._failed_elsewhere(entry):
                self._become(entry, JobState.FAILED)
                entry.reason = reason
                self._ended(entry)
            else:
                return entry
        return None

    def spec_of(self, job: Entry) -> JobSpec:
        """Return a job as its launcher takes it; the ledger hears that it starts."""
        self.book.write(ledger.STARTED, job.job)
        job.job.check_place()
        self._become(job, JobState.RUNNING)
        return job_spec(job.job, self._target)

    def on_refused(self, job: Entry, error: Exception) -> None:
        """Note why a job could not be started."""
        is_ours = isinstance(error, ConfigError)
        self._end(job, JobState.FAILED, str(error) if is_ours else f"cannot be started: {error}")

    def on_end(self, job: Entry, end: JobEnd, ran_s: float) -> None:
        """Judge a job by its directory first, then by how its process ended."""
        job.ran_s = ran_s
        if job.job.is_finished():
            self._end(job, JobState.DONE)
        elif end.code == EXIT_BUSY:
            self._become(job, JobState.WAITING)
            self._leave_to_others(job)
        elif self.stop_signal is not None and end.limit is None and end.code not in (1, 2):
            self._become(job, JobState.WAITING)
            self.book.write(ledger.STOPPED, job.job, code=end.code)
        else:
            self._end(job, JobState.FAILED, explain_end(end, job.job), code=end.code)

    def _next(self) -> Entry | None:
        """Return a job whose turn it is; one that runs elsewhere is looked at now and then."""
        # All wait equally long, so that the first is due first.
        if self.elsewhere and self.elsewhere[0].look_at <= time.monotonic():
            return self.elsewhere.popleft()
        return self._waiting.popleft() if self._waiting else None

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
        entry.look_at = time.monotonic() + _LOOK_AGAIN_S
        self.elsewhere.append(entry)

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


def job_spec(job: SweepJob, target: str) -> JobSpec:
    """Return a job as a launcher takes it."""
    infra = job.config.infra
    minutes = infra.time_limit_minutes
    data = {"config": job.config.model_dump(), "command": job.command}
    limits = Limits(infra.memory_gib, None if minutes is None else 60.0 * minutes)
    return JobSpec(job.title, target, data, log_file(job.run_dir), limits)

"""Runs the jobs of a sweep: as many at once as there is room for, each on its own."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.records import Follower
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import EXIT_BUSY, EXIT_FAILED, ConfigError
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Launcher, Limits
from rlzoo_plus.sweeps.launchers.scheduler import Scheduler, stop_code
from rlzoo_plus.sweeps.ledger import DONE, FAILED, STARTED, STOPPED, Ledger
from rlzoo_plus.sweeps.presence import Presence
from rlzoo_plus.sweeps.states import JobState, explain_end, log_file
from rlzoo_plus.sweeps.sweep_job import SweepJob

TARGET = "rlzoo_plus.runs.train_job:run_job"
_LOOK_AGAIN_S = 1.0


@dataclass
class Entry:
    """A job and its state in a controller."""

    job: SweepJob
    state: JobState = JobState.WAITING
    reason: str = ""  # why it failed
    # When to check it again if another process trains in its directory, in `time.monotonic` [s].
    look_at: float = 0.0
    ran_s: float = 0.0  # time it ran here [s]; 0 if it was done already


class Controller(Scheduler[Entry]):
    """Runs jobs until all are done or have failed, or until it is asked to stop."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: list[SweepJob],
        launcher: Launcher,
        ended: Callable[[Entry], None] = lambda entry: None,
        tick: Callable[[], None] = lambda: None,
        target: str = TARGET,
        *,
        may_start: Callable[[SweepJob], bool] = lambda job: True,
        takes_signals: bool = True,
    ) -> None:
        """Take jobs; none is started yet.

        `ended` is called with each job that ended, and with those that were done already; `tick` a
        few times a second. `target` is the function that a job's process calls. A job whose turn
        has come waits for another call if `may_start` says no; for `takes_signals` see `Scheduler`.
        """
        super().__init__(launcher, takes_signals=takes_signals)
        self.ledger = ledger
        self.entries = [Entry(job) for job in jobs]
        # Counted here, so that a poll costs the same however many jobs wait.
        self.counts = Counter({JobState.WAITING: len(jobs)})
        self.elsewhere: deque[Entry] = deque()
        self._waiting: deque[Entry] = deque()
        self._news = Follower(ledger.path)
        self._failed_there: dict[str, str] = {}
        self._ended, self._tick, self._target = ended, tick, target
        self._may_start = may_start

    def run(self) -> int:
        """Run the jobs; return 0, 1 if one failed, 75 or 130 if the sweep was stopped."""
        with Presence(self.ledger.sweep) as self._presence:
            self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        return EXIT_FAILED if self.counts[JobState.FAILED] else 0

    def run_rounds(self) -> None:
        """Report what is done already, and run the rest."""
        for entry in self.entries:
            if self.stop_signal is not None:
                break
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            else:
                self._waiting.append(entry)
        super().run_rounds()

    def is_asked_to_stop(self) -> bool:
        """Return whether `sweep cancel` was called."""
        return self._presence.is_asked_to_stop()

    def after_round(self) -> None:
        """Let the caller show the progress."""
        self._tick()

    def has_more(self) -> bool:
        """Return whether jobs wait, or run in other processes."""
        return bool(self._waiting or self.elsewhere)

    def next_job(self) -> Entry | None:
        """Return a job that no other process has finished, tried or begun meanwhile."""
        while self.stop_signal is None:
            # All in `elsewhere` wait equally long, so that the first is due first.
            if self.elsewhere and self.elsewhere[0].look_at <= time.monotonic():
                entry = self.elsewhere.popleft()
            elif self._waiting:
                entry = self._waiting.popleft()
            else:
                break
            if entry.job.is_finished():
                self._end(entry, JobState.DONE)
            elif entry.job.run_dir.lock.is_held_elsewhere():
                self._leave_to_others(entry)
            elif reason := self._failed_elsewhere(entry):
                self._become(entry, JobState.FAILED, reason)
                self._ended(entry)
            elif self._may_start(entry.job):
                return entry
        return None

    def spec_of(self, job: Entry) -> JobSpec:
        """Return a job as its launcher takes it, and record its start."""
        self.ledger.write(STARTED, job.job)
        job.job.check_place()
        self._become(job, JobState.RUNNING)
        return job_spec(job.job, self._target)

    def on_refused(self, job: Entry, error: Exception) -> None:
        """Record why a job could not be started; one that a signal came in the way of waits."""
        if self.stop_signal is not None and not isinstance(error, ConfigError):
            self._become(job, JobState.WAITING)
            self.ledger.write(STOPPED, job.job)
            return
        prefix = "" if isinstance(error, ConfigError) else "cannot be started: "
        self._end(job, JobState.FAILED, f"{prefix}{error}")

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
            self.ledger.write(STOPPED, job.job, code=end.code)
        else:
            self._end(job, JobState.FAILED, explain_end(end, job.job.run_dir), code=end.code)

    def _failed_elsewhere(self, entry: Entry) -> str | None:
        """Return why the attempt of another controller failed while this one worked."""
        for record in self._news.new():
            key, event = record.get("job"), record.get("event")
            if isinstance(key, str) and event == FAILED:
                reason = record.get("reason") or "failed in another process"
                self._failed_there[key] = printable(reason)
            elif isinstance(key, str):
                self._failed_there.pop(key, None)
        return self._failed_there.get(entry.job.key)

    def _leave_to_others(self, entry: Entry) -> None:
        entry.look_at = time.monotonic() + _LOOK_AGAIN_S
        self.elsewhere.append(entry)

    def _end(self, entry: Entry, state: JobState, reason: str = "", **details: Any) -> None:
        self._become(entry, state, reason)
        if state is JobState.FAILED:
            self.ledger.write(FAILED, entry.job, reason=reason, **details)
        elif entry.ran_s:
            self.ledger.write(DONE, entry.job, seconds=round(entry.ran_s, 3))
        self._ended(entry)

    def _become(self, entry: Entry, state: JobState, reason: str = "") -> None:
        self.counts[entry.state] -= 1
        self.counts[state] += 1
        entry.state, entry.reason = state, reason


def job_spec(job: SweepJob, target: str) -> JobSpec:
    """Return a job as a launcher takes it."""
    data = {"config": job.config.model_dump(), "command": job.command}
    limits = Limits.of(job.config.infra)
    is_run = target == TARGET
    return JobSpec(job.title, target, data, log_file(job.run_dir), limits, is_run)

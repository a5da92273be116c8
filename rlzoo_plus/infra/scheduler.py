"""The loop that runs jobs: as many at once as a launcher has slots, until nothing is left."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.job import EXIT_SIGINT, EXIT_SIGTERM, JobEnd, JobSpec
from rlzoo_plus.infra.launcher import Handle, Launcher
from rlzoo_plus.infra.stop_signals import stop_signals_go_to

POLL_S = 0.2
T = TypeVar("T")


# Without a comparison of jobs: each is itself.
@dataclass(eq=False)
class Active(Generic[T]):
    """A job that was submitted.

    Attributes:
        job: What the subclass calls a job.
        handle: The job at its launcher.
        started: When it was submitted, in `time.monotonic` [s].
    """

    job: T
    handle: Handle
    started: float


class Scheduler(Generic[T]):
    """Submits jobs while there are free slots, and hears how they end; used by one thread.

    A subclass says where jobs come from and what the end of one means. Jobs may follow from the
    results of earlier ones: `next_job` is asked again in each round. Limits of memory and time, and
    jobs that are lost, are the launcher's matter: a handle tells them as the end of its job.

    The first signal to stop asks the running jobs to end cleanly, the second one kills them. No
    job outlives the loop.
    """

    def __init__(self, launcher: Launcher, *, takes_signals: bool = True) -> None:
        """Begin without jobs.

        Args:
            launcher: Where jobs run, and how many at once.
            takes_signals: Whether SIGINT, SIGTERM and SIGHUP are taken while the loop runs. If
                not, Ctrl-C stops the jobs too, and is raised again after their end.
        """
        self.launcher = launcher
        self.active: list[Active[T]] = []
        self.stop_signal: int | None = None
        self._takes_signals = takes_signals
        self._must_kill = False

    # What a subclass says.

    def next_job(self) -> T | None:
        """Return the job that takes the free slot, None if there is none at this moment."""
        raise NotImplementedError

    def spec_of(self, job: T) -> JobSpec:
        """Return a job as its launcher takes it.

        Raises:
            ConfigError: It cannot be started.
        """
        raise NotImplementedError

    def on_end(self, job: T, end: JobEnd, ran_s: float) -> None:
        """Take note of how a job ended, and how long it ran [s]."""
        raise NotImplementedError

    def on_refused(self, job: T, error: Exception) -> None:
        """Take note of why a job could not be started."""
        raise NotImplementedError

    def has_more(self) -> bool:
        """Tell whether jobs may follow; asked once a round while nothing runs."""
        return False

    def is_asked_to_stop(self) -> bool:
        """Tell whether somebody else asks the loop to stop, as SIGTERM would."""
        return False

    def on_stop(self) -> None:
        """Ask the running jobs to end cleanly; called once. What it raises ends the loop."""
        for each in self.active:
            each.handle.stop()

    def before_loop(self) -> None:
        """Do what comes before all rounds."""

    def before_round(self) -> None:
        """Do what is due some times a second, before jobs are started."""

    def after_round(self) -> None:
        """Do what is due some times a second, after jobs have ended."""

    def after_loop(self) -> None:
        """Do what comes after all rounds, unless an error ended them."""

    # The loop.

    def run_loop(self) -> None:
        """Run jobs until none may follow, or until all have ended after a signal.

        Raises:
            KeyboardInterrupt: By Ctrl-C, if signals are not taken.
        """
        with contextlib.ExitStack() as stack:
            if self._takes_signals:
                stack.enter_context(stop_signals_go_to(self._on_signal))
            try:
                self.before_loop()
                self._loop()
                self.after_loop()
            finally:
                # Only an error leaves jobs behind.
                self._kill()
        if self.stop_signal == signal.SIGINT and not self._takes_signals:
            raise KeyboardInterrupt

    def _loop(self) -> None:
        is_told = False
        while True:
            if self.stop_signal is None and self.is_asked_to_stop():
                self.stop_signal = signal.SIGTERM
            self.before_round()
            if self.stop_signal is None:
                self._fill_slots()
            elif not is_told:
                is_told = True
                self.on_stop()
            if self._must_kill:
                self._kill()
            has_ended = self._collect()
            self.after_round()
            if not self.active and (self.stop_signal is not None or not self.has_more()):
                return
            if not has_ended:
                self._wait()

    def _fill_slots(self) -> None:
        while len(self.active) < self.launcher.slots and self.stop_signal is None:
            job = self.next_job()
            if job is None:
                return
            started = time.monotonic()
            try:
                handle = self.launcher.submit(self.spec_of(job))
            except (OSError, EOFError, ConfigError) as error:
                self.on_refused(job, error)
            else:
                self.active.append(Active(job, handle, started))

    def _collect(self) -> bool:
        """Hear which jobs have ended; return whether any has."""
        ended = [(each, end) for each in self.active if (end := each.handle.poll()) is not None]
        for each, end in ended:
            self.active.remove(each)
            self.on_end(each.job, end, time.monotonic() - each.started)
        return bool(ended)

    def _wait(self) -> None:
        try:
            self.launcher.wait([each.handle for each in self.active], POLL_S)
        except KeyboardInterrupt:
            # Elsewhere in a round it may have come between a job and the list it belongs to.
            self._on_signal(signal.SIGINT, None)

    def _kill(self) -> None:
        for each in self.active:
            each.handle.kill()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._must_kill = self.stop_signal is not None
        self.stop_signal = self.stop_signal or number


class JobsStopped(KeyboardInterrupt):
    """A signal ended jobs before their time.

    Attributes:
        code: What the command returns.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = stop_code(number)


class _Together(Scheduler[JobSpec]):
    """Runs a few jobs, for so long at most; a signal kills them."""

    def __init__(self, launcher: Launcher, specs: Sequence[JobSpec], at_most_s: float) -> None:
        super().__init__(launcher)
        self._waiting = list(specs)
        self._deadline = time.monotonic() + at_most_s
        self._is_late = False

    def next_job(self) -> JobSpec | None:
        return self._waiting.pop(0) if self._waiting else None

    def spec_of(self, job: JobSpec) -> JobSpec:
        return job

    def on_end(self, job: JobSpec, end: JobEnd, ran_s: float) -> None:
        """Nothing: what jobs have found is in their files."""

    def on_refused(self, job: JobSpec, error: Exception) -> None:
        raise error

    def has_more(self) -> bool:
        return bool(self._waiting)

    def is_asked_to_stop(self) -> bool:
        self._is_late = time.monotonic() >= self._deadline
        return self._is_late

    def on_stop(self) -> None:
        if not self._is_late:
            assert self.stop_signal is not None
            raise JobsStopped(self.stop_signal)
        self._kill()
        self.active.clear()


def run_together(
    launcher: Launcher, specs: Sequence[JobSpec], at_most_s: float = float("inf")
) -> None:
    """Run a few jobs to their end; those that are not over in time are killed.

    Raises:
        JobsStopped: By a signal; all of them are killed.
    """
    _Together(launcher, specs, at_most_s).run_loop()


def stop_code(number: int) -> int:
    """Return the exit code of a command that a signal has stopped."""
    return EXIT_SIGINT if number == signal.SIGINT else EXIT_SIGTERM

"""The loop that runs jobs: as many at once as a launcher has slots, until nothing is left."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

from rlzoo_plus.errors import EXIT_SIGINT, EXIT_SIGTERM, ConfigError
from rlzoo_plus.processes import stop_signals_go_to
from rlzoo_plus.sweeps.launchers.launcher import Handle, JobEnd, JobSpec, Launcher

POLL_S = 0.2
T = TypeVar("T")


@dataclass(eq=False)
class Active(Generic[T]):
    """A submitted job, its handle, and when it was submitted, in `time.monotonic` [s]."""

    job: T
    handle: Handle
    started: float


class Scheduler(Generic[T]):
    """Submits jobs while there are free slots, and learns how they end; used by one thread.

    A subclass says where jobs come from and what the end of one means. Jobs may follow from the
    results of earlier ones: `next_job` is asked again in each round. The launcher enforces limits
    and notices lost jobs: a handle reports them as the end of its job.

    The first signal to stop asks the running jobs to end cleanly, the second one kills them. No
    job outlives the loop.
    """

    def __init__(self, launcher: Launcher, *, takes_signals: bool = True) -> None:
        """Begin without jobs.

        It handles SIGINT, SIGTERM and SIGHUP, unless `takes_signals` is false: then Ctrl-C stops
        the jobs too, and is raised again after their end.
        """
        self.launcher = launcher
        self.active: list[Active[T]] = []
        self.stop_signal: int | None = None
        self._takes_signals = takes_signals
        self._must_kill = False

    def next_job(self) -> T | None:
        """Return the job for a free slot, None if there is none at this moment."""
        raise NotImplementedError

    def spec_of(self, job: T) -> JobSpec:
        """Return a job as its launcher takes it."""
        raise NotImplementedError

    def on_end(self, job: T, end: JobEnd, ran_s: float) -> None:
        """Handle the end of a job that ran for `ran_s` seconds."""
        raise NotImplementedError

    def on_refused(self, job: T, error: Exception) -> None:
        """Handle a job that could not be started."""
        raise NotImplementedError

    def has_more(self) -> bool:
        """Return whether jobs may follow; called once a round while nothing runs."""
        return False

    def is_asked_to_stop(self) -> bool:
        """Return whether another process asks the loop to stop, as SIGTERM would."""
        return False

    def before_round(self) -> None:
        """Act a few times a second, before jobs are started."""

    def after_round(self) -> None:
        """Act a few times a second, after jobs have ended."""

    def run_loop(self) -> None:
        """Run jobs until none may follow, or until all have ended after a signal.

        Raises:
            KeyboardInterrupt: By Ctrl-C, if the loop does not take signals.
        """
        signals = stop_signals_go_to(self._on_signal)
        with signals if self._takes_signals else contextlib.nullcontext():
            try:
                self.run_rounds()
            finally:
                # Only an error leaves jobs behind.
                self._kill()
        if self.stop_signal == signal.SIGINT and not self._takes_signals:
            raise KeyboardInterrupt

    def run_rounds(self) -> None:
        """Run the rounds of the loop; a subclass may act before and after all of them."""
        were_stopped = False
        while True:
            if self.stop_signal is None and self.is_asked_to_stop():
                self.stop_signal = signal.SIGTERM
            self.before_round()
            if self.stop_signal is None:
                self._fill_slots()
            elif not were_stopped:
                were_stopped = True
                for each in self.active:
                    each.handle.stop()
            if self._must_kill:
                self._kill()
            has_ended = self._collect()
            self.after_round()
            if not self.active and (self.stop_signal is not None or not self.has_more()):
                return
            if not has_ended:
                try:
                    self.launcher.wait([each.handle for each in self.active], POLL_S)
                except KeyboardInterrupt:
                    # Elsewhere in a round it could come between a job and the list of active jobs.
                    self._on_signal(signal.SIGINT, None)

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
        """Handle the jobs that ended; return whether any did."""
        ended = [(each, end) for each in self.active if (end := each.handle.poll()) is not None]
        for each, end in ended:
            self.active.remove(each)
            self.on_end(each.job, end, time.monotonic() - each.started)
        return bool(ended)

    def _kill(self) -> None:
        for each in self.active:
            each.handle.kill()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._must_kill = self.stop_signal is not None
        self.stop_signal = self.stop_signal or number


class JobsStopped(KeyboardInterrupt):
    """A signal ended jobs before their time; `code` is what the command returns."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = stop_code(number)


def run_together(
    launcher: Launcher, specs: Sequence[JobSpec], at_most_s: float = float("inf")
) -> None:
    """Run a few jobs to their end; kill those that are not over in time.

    Raises:
        JobsStopped: By a signal; all of them are killed.
    """
    signals: list[int] = []
    waiting, active = list(specs), list[Handle]()
    deadline = time.monotonic() + at_most_s
    with stop_signals_go_to(lambda number, _: signals.append(number)):
        try:
            while (waiting or active) and time.monotonic() < deadline and not signals:
                while waiting and len(active) < launcher.slots:
                    active.append(launcher.submit(waiting.pop(0)))
                active = [handle for handle in active if handle.poll() is None]
                if active:
                    launcher.wait(active, POLL_S)
        finally:
            for handle in active:
                handle.kill()
    if signals:
        raise JobsStopped(signals[0])


def stop_code(number: int) -> int:
    """Return the exit code of a command that a signal has stopped."""
    return EXIT_SIGINT if number == signal.SIGINT else EXIT_SIGTERM

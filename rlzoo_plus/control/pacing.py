"""The clock of the loop: absolute deadlines, one each control period."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rlzoo_plus.control.faults import DEADLINES, Fault

# The system wakes a sleeper late by less than this; the rest is waited for actively.
_SPIN_S = 0.0005


class Clock(ABC):
    """Tells the time and waits; in seconds."""

    @abstractmethod
    def now(self) -> float:
        """Return the time, which never goes back."""

    @abstractmethod
    def wait_until(self, time_s: float) -> None:
        """Return at a time, at once if it is over."""

    def age_of(self, time_s: float) -> float:
        """Return how old a reading of that time is."""
        return self.now() - time_s


class RealClock(Clock):
    """The monotonic clock of the system."""

    def now(self) -> float:
        """Return the time since some moment before."""
        return time.monotonic()

    def wait_until(self, time_s: float) -> None:
        """Sleep, and spin for the last half millisecond."""
        left = time_s - time.monotonic()
        if left > _SPIN_S:
            time.sleep(left - _SPIN_S)
        while time.monotonic() < time_s:
            pass


class SteppedClock(Clock):
    """The time of a robot that is stepped by its commands: waiting takes none, nothing is late."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        """Return the time that was waited for."""
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        """Go on to a time."""
        self._now_s = max(self._now_s, time_s)

    def age_of(self, time_s: float) -> float:
        """Return 0: what such a robot reads is what its last step led to."""
        del time_s
        return 0.0


class Pacer:
    """Waits for one deadline after the other, and counts those that were missed.

    Attributes:
        missed: Number of deadlines missed so far.
    """

    def __init__(self, clock: Clock, period_s: float, most_missed: int) -> None:
        self._clock, self._period_s, self._most = clock, period_s, most_missed
        self._next_s: float | None = None
        self._last_s = 0.0
        self._in_a_row = self.missed = 0
        self._periods: list[float] = []

    def restart(self) -> None:
        """Begin anew: the next deadline is one period after the next `wait`."""
        self._next_s, self._in_a_row = None, 0

    def check(self) -> None:
        """Look whether a decision came in time to be sent.

        Raises:
            Fault: It is late by a period or more: robots stop themselves then.
        """
        if self._next_s is not None:
            late_s = self._clock.now() - self._next_s
            if late_s > self._period_s:
                raise Fault(DEADLINES, f"a decision is {1000 * late_s:.1f} ms late")

    def wait(self) -> None:
        """Wait for the next deadline.

        Raises:
            Fault: Too many in a row were missed.
        """
        now = self._clock.now()
        if self._next_s is None:
            self._next_s, self._last_s = now + self._period_s, now
            return
        late_s = now - self._next_s
        if late_s <= 0:
            self._clock.wait_until(self._next_s)
            now, self._in_a_row = self._clock.now(), 0
        else:
            self.missed += 1
            self._in_a_row += 1
        self._periods.append(now - self._last_s)
        self._last_s = now
        # A deadline that is over already is not waited for, and the grid of deadlines stays.
        self._next_s += self._period_s * (1 + max(0.0, late_s) // self._period_s)
        if self._in_a_row >= self._most:
            raise Fault(
                DEADLINES, f"{self._in_a_row} in a row, the last one by {1000 * late_s:.1f} ms"
            )

    def summary(self) -> dict[str, float]:
        """Return number, mean and error of the periods [ms], and the missed deadlines."""
        periods = np.array(self._periods or [np.nan])
        errors = np.abs(periods - self._period_s)
        p99, largest = np.percentile(errors, (99, 100))
        return {
            "n_periods": len(self._periods),
            "period_ms": 1000 * self._period_s,
            "mean_period_ms": float(1000 * periods.mean()),
            "p99_error_ms": float(1000 * p99),
            "largest_error_ms": float(1000 * largest),
            "missed_deadlines": self.missed,
        }


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep Python's collector of cycles from pausing the loop, inside."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

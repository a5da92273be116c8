"""How many threads share a step of many worlds: as asked for, or chosen by timing some steps."""

import logging
import os
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from robots.cores import usable_cores

THREADS = "ROBOTS_THREADS"
AUTO = "auto"
# Timed steps for each number of threads, after one that is not counted.
_TIMED = 12
# What one more doubling of the threads must save to be worth the processor time.
_WORTH = 0.9
log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# Of this process, by the number of worlds and what kind they are.
_chosen: dict[tuple[int, int], int] = {}


class Threads:
    """Gives each step a number of threads, which changes no number that is read.

    ``ROBOTS_THREADS`` sets it. Otherwise the first steps of worlds of a kind are taken with 1, 2,
    4, ... threads in turn, up to the cores that this process may use and to the number of worlds;
    the fewest that are about as fast as any are kept for this process.

    Attributes:
        count: Threads of the next step.
    """

    def __init__(self, n_worlds: int, kind: int) -> None:
        """Choose for a number of worlds; ``kind`` tells apart worlds that take unlike times.

        Raises:
            ValueError: ``ROBOTS_THREADS`` is no number of threads.
        """
        asked = read_threads()
        self._key = n_worlds, kind
        self._times: dict[int, list[float]] = {}
        self.count = 1 if asked is None else min(asked, n_worlds)
        if asked is not None:
            return
        most = min(usable_cores(), n_worlds)
        if self._key in _chosen:
            self.count = min(_chosen[self._key], most)
        elif most > 1:
            self._times = {count: [] for count in _candidates(most)}

    def timed(self, step: Callable[[int], _Result]) -> _Result:
        """Return what a step with a number of threads returns; time it until one is chosen."""
        if not self._times:
            return step(self.count)
        began = time.perf_counter()
        result = step(self.count)
        self._note(time.perf_counter() - began)
        return result

    def _note(self, seconds: float) -> None:
        self._times[self.count].append(seconds)
        self.count = min(self._times, key=lambda count: len(self._times[count]))
        if len(self._times[self.count]) <= _TIMED:
            return
        medians = {count: statistics.median(times[1:]) for count, times in self._times.items()}
        self._times = {}
        self.count = 1
        for count in sorted(medians):
            if medians[count] < _WORTH * medians[self.count]:
                self.count = count
        _chosen[self._key] = self.count
        figures = ", ".join(f"{count}: {1e3 * s:.2f}" for count, s in sorted(medians.items()))
        log.debug(
            "threads for %d worlds: %d (ms a step with %s); %s sets it, the numbers are the same",
            *(self._key[0], self.count, figures, THREADS),
        )


def read_threads() -> int | None:
    """Return the number of threads that ``ROBOTS_THREADS`` asks for; None for ``auto`` or unset.

    Raises:
        ValueError: If it is neither ``auto`` nor a whole number from 1.
    """
    text = os.environ.get(THREADS) or AUTO
    if text == AUTO:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{THREADS}={text!r} must be auto or a whole number from 1. Unset it.")
    return int(text)


def _candidates(most: int) -> list[int]:
    doubled = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return sorted({*doubled, most})

"""Says how far the planning of a sweep is: a bar in a terminal, else a line now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Fewer jobs are planned in a second.
_WORTH_A_WORD = 50
_REDRAW_S, _LINE_S = 0.1, 5.0
_BAR = 24


class Planning:
    """One count through the jobs of a sweep."""

    def __init__(self, console: Console, what: str, n_jobs: int) -> None:
        """Say what begins, if it may take a while.

        Args:
            console: Where.
            what: What is done to each job, e.g. `planning`.
            n_jobs: Number of jobs.
        """
        self._console, self._what, self._total = console, what, n_jobs
        self._is_quiet = n_jobs < _WORTH_A_WORD
        self._done = 0
        self._drawn = time.monotonic()
        if not self._is_quiet:
            console.print(f"{what} {n_jobs:,} jobs", markup=False)

    def advance(self) -> None:
        """Count a job."""
        self._done += 1
        now = time.monotonic()
        wait = _REDRAW_S if self._console.is_terminal else _LINE_S
        if self._is_quiet or now - self._drawn < wait:
            return
        self._drawn = now
        text = f"{self._what}: {self._done:,} of {self._total:,} jobs"
        if not self._console.is_terminal:
            self._console.print(text, markup=False)
            return
        full = _BAR * self._done // self._total
        bar = "━" * full + " " * (_BAR - full)
        # Nothing has to be restored after it, whatever ends the command.
        self._write(f"\r\x1b[K{bar} {text}"[: self._console.width + 3])

    def end(self) -> None:
        """Take the bar away."""
        if self._console.is_terminal and not self._is_quiet:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()

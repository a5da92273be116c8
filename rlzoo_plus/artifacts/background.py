"""Writing while training goes on: one job at a time, in one thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class BackgroundWriter:
    """Runs jobs one after the other in a thread; a job's error is raised by the next `wait`."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[Any] | None = None

    def submit(self, job: Callable[[], Any]) -> None:
        """Wait for the job before, then start this one."""
        self.wait()
        self._running = self._executor.submit(job)

    def wait(self) -> None:
        """Return when nothing is being written.

        Raises:
            Exception: Whatever the last job raised.
        """
        if self._running is not None:
            # Ctrl-C here must not make a job forgotten that still writes.
            error = self._running.exception()
            self._running = None
            if error is not None:
                raise error

    def is_busy(self) -> bool:
        """Return whether a job is running."""
        return self._running is not None and not self._running.done()

    def close(self) -> None:
        """Let the running job finish, and end the thread."""
        self._executor.shutdown(wait=True)

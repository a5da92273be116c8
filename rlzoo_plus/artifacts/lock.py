"""One process trains in a run directory at a time; the system frees the lock if it dies."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from rlzoo_plus.artifacts.inside import check_inside

# Longer than another process holds a lock to see whether it is held.
_PATIENCE_S = 0.5


class RunLock:
    """An exclusive lock on a run directory, held until it is released or the process is gone."""

    def __init__(self, path: Path) -> None:
        """Prepare a lock on a file, e.g. `<run>/.lock`; nothing is taken yet."""
        self.path = path
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        """Take the lock; return False if a living process has it, and not just to look.

        Raises:
            OutsideError: The lock's file is a link.
        """
        # Taking a lock opens its file for writing.
        check_inside(self.path.parent, self.path)
        try:
            self._lock.acquire(timeout=_PATIENCE_S, poll_interval=0.02)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Give the lock back; calling it again does nothing."""
        self._lock.release()

    def is_held_elsewhere(self) -> bool:
        """Return whether a living process has the lock."""
        # A link is not ours.
        if self.path.is_symlink() or not self.path.is_file():
            return False
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return True
        self.release()
        return False

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

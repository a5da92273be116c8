"""Which controllers work on a sweep, and how one of them is asked to stop."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunLock

# A file exists a moment before it is locked.
_YOUNG_S = 60.0


class Presence:
    """Shows that a controller works on a sweep, for as long as its process lives."""

    def __init__(self, sweep: Path) -> None:
        self.path = _folder(sweep) / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.lock"
        self._lock = RunLock(self.path)

    @property
    def name(self) -> str:
        """A name that no other controller has."""
        return self.path.stem

    def is_asked_to_stop(self) -> bool:
        """Return whether another process asked this controller to stop."""
        return self.path.with_suffix(".stop").exists()

    def __enter__(self) -> Presence:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Files of killed controllers.
        for file in self.path.parent.glob("*.lock"):
            with contextlib.suppress(OSError, OutsideError):
                is_old = time.time() - file.stat().st_mtime > _YOUNG_S
                if is_old and not RunLock(file).is_held_elsewhere():
                    file.unlink()
                    file.with_suffix(".stop").unlink(missing_ok=True)
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        for path in (self.path, self.path.with_suffix(".stop")):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()


def is_present(sweep: Path, name: str) -> bool:
    """Return whether the controller of a name still works on a sweep."""
    return RunLock(_folder(sweep) / f"{name}.lock").is_held_elsewhere()


def living_controllers(sweep: Path) -> list[Path]:
    """Return the files of the controllers that work on a sweep now."""
    files = sorted(_folder(sweep).glob("*.lock"))
    return [file for file in files if RunLock(file).is_held_elsewhere()]


def ask_to_stop(sweep: Path) -> int:
    """Ask all controllers of a sweep to stop cleanly; return how many there are."""
    living = living_controllers(sweep)
    for file in living:
        request = file.with_suffix(".stop")
        check_inside(sweep, request)
        request.touch()
    return len(living)


def _folder(sweep: Path) -> Path:
    """Return the folder of the controllers' files.

    Raises:
        OutsideError: It is a link.
    """
    folder = sweep / ".controllers"
    check_inside(sweep, folder)
    return folder

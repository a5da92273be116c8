"""Guards existing directories: nothing is written or removed through a link.

The directory that a user names may itself be a link; its content is untrusted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

# Trackers create links in these; only a trusted run has a tracker.
_OF_TRACKERS = ("wandb", "mlflow")
_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT
_APPENDING |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class OutsideError(ConfigError):
    """Writing or removing a file would reach outside of the named directory."""


def check_inside(root: Path, path: Path) -> None:
    """Refuse a path, which need not exist, that is not below a directory or leads out of it.

    Raises:
        OutsideError: A part of it below `root` is a link, or it is not below `root`.
    """
    parts = path.relative_to(root).parts
    if ".." in parts:
        raise OutsideError(f"{printable(path)} is not below {printable(root)}.")
    place = root
    for part in parts:
        place = place / part
        if place.is_symlink():
            raise OutsideError(_refusal(place))


def check_plain(folder: Path) -> None:
    """Refuse a directory with anything other than plain files and folders in it.

    Raises:
        OutsideError: At any depth there is a link, a FIFO or the like.
    """
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        here = waiting.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if here != folder or entry.name not in _OF_TRACKERS:
                        waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    raise OutsideError(_refusal(Path(entry.path)))


def open_to_append(path: Path) -> BinaryIO:
    """Open a plain file to append to it and to read it; create it if there is none.

    Raises:
        OutsideError: It is a link, or not a plain file.
    """
    # First of all, for systems without O_NOFOLLOW, and for what cannot be opened at all.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OutsideError(_refusal(path))
    handle = os.open(path, _APPENDING, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OutsideError(_refusal(path))
    return os.fdopen(handle, "ab+")


def _refusal(path: Path) -> str:
    return (
        f"{printable(path)} is a link or not a plain file, through which files elsewhere could be "
        "written or removed. Replace it by a plain file or folder."
    )

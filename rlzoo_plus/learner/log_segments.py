"""A log of transitions in segments, so that what is in a checkpoint's replay buffer can go.

Each file has the number of its first transition as its name. The folder is hidden: what is sent to
a store does not need it, since a run goes on from its checkpoint without it.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path

from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.learner.child_process import held
from rlzoo_plus.learner.transition_log import Layout, LogReader, LogWriter, Transition

log = logging.getLogger(__name__)
FOLDER = ".transitions"
SEGMENT_BYTES = 2**26
_NAME, _LOCK = "{:015d}.bin", ".lock"


def firsts_in(folder: Path) -> list[int]:
    """Return the numbers that the segments of a log begin with, in order."""
    stems = (path.stem for path in folder.glob("*.bin"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def begin_at(folder: Path, layout: Layout, step: int, together: int = 1) -> int:
    """Let a log have all transitions from one on, or begin it there; return where it ends.

    Who collected in an earlier session is waited for.

    Args:
        folder: Of the log.
        layout: How transitions are bytes.
        step: Number of the next transition that is learned from.
        together: Transitions of one step of all environments.

    Raises:
        ConfigError: It is of other spaces, damaged, or leads out of the run.
        RunError: Another process writes to it.
    """
    check_inside(folder.parent, folder)
    folder.mkdir(exist_ok=True)
    with held(folder / _LOCK):
        return _covering(folder, layout, step, together)


def _covering(folder: Path, layout: Layout, step: int, together: int) -> int:
    firsts = firsts_in(folder)
    if firsts and firsts[0] <= step:
        writer = LogWriter(_path(folder, firsts[-1]), layout, firsts[-1], together)
        writer.close()
        if writer.count >= step:
            return writer.count
    if firsts:
        log.warning("%s does not have the transitions from %d on; it begins anew", folder, step)
    for first in firsts:
        _path(folder, first).unlink()
    LogWriter(_path(folder, step), layout, step).close()
    return step


class SegmentWriter:
    """Appends to a log in segments; `begin_at` has made it.

    Attributes:
        count: The number of the next transition.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        """Open the last segment.

        Raises:
            RunError: Another process writes to it.
        """
        self._folder, self._layout = folder, layout
        self._lock = held(folder / _LOCK)
        first = firsts_in(folder)[-1]
        self._writer = LogWriter(_path(folder, first), layout, first)
        self.count = self._writer.count

    def add(self, *rows: Transition) -> None:
        """Append the transitions of one step; see `LogWriter.add`."""
        if self._writer.size > SEGMENT_BYTES:
            self._writer.close()
            self._writer = LogWriter(_path(self._folder, self.count), self._layout, self.count)
        self._writer.add(*rows)
        self.count = self._writer.count

    def close(self) -> None:
        """Bring it to the disk, and close it."""
        self._writer.close()
        self._lock.release()


class SegmentReader:
    """Reads a log in segments, and removes those that no resume needs."""

    def __init__(self, folder: Path, layout: Layout, step: int, needed: Callable[[], int]) -> None:
        """Open the segment with a transition.

        Args:
            folder: Of the log.
            layout: How transitions are bytes.
            step: Number of the transition.
            needed: Returns the number of the first transition that a resume may need.
        """
        self._folder, self._layout, self._needed = folder, layout, needed
        self._open(max(first for first in firsts_in(folder) if first <= step))

    def _open(self, first: int) -> None:
        self._reader = LogReader(_path(self._folder, first), self._layout, first)

    def row(self, number: int) -> Transition | None:
        """Return a transition; None if it is not there yet."""
        found = self._reader.row(number)
        if found is None and _path(self._folder, number).is_file():
            self._reader.close()
            self._open(number)
            self._remove_old()
            found = self._reader.row(number)
        return found

    def _remove_old(self) -> None:
        firsts, needed = firsts_in(self._folder), self._needed()
        for first, following in itertools.pairwise(firsts):
            if following <= needed:
                os.unlink(_path(self._folder, first))

    def close(self) -> None:
        """Close its file."""
        self._reader.close()


def _path(folder: Path, first: int) -> Path:
    return folder / _NAME.format(first)

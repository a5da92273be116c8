"""Append-only JSON lines: one record a line, readable while a run writes and after a kill."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.inside import open_to_append
from rlzoo_plus.artifacts.untrusted import LONGEST_RECORD_BYTES, open_plain, read_plain_lines


def append_records(
    path: Path, records: Iterable[Mapping[str, Any]], *, keep_infinities: bool = False
) -> None:
    """Append records, each on its own line, with one write; NaN and infinities become null.

    Args:
        path: The file.
        records: The records.
        keep_infinities: Write NaN and infinities as Python does, `Infinity`.

    Raises:
        OutsideError: The file is a link, or not a plain file.
    """
    written = records if keep_infinities else map(finite, records)
    text = "".join(json.dumps(record) + "\n" for record in written)
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        append_lines(path, text)


def append_lines(path: Path, text: str) -> None:
    """Append whole lines with one write, without reading the file.

    Raises:
        OutsideError: The file is a link, or not a plain file.
    """
    with open_to_append(path) as file:
        # A line that a kill cut short must not run into this one.
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            text = "\n" + text
        file.write(text.encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, see `iter_records`."""
    return list(iter_records(path))


def iter_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; other lines, as a torn last one, are skipped.

    Anything but a plain file has none: a FIFO would block, and a link may lead elsewhere.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in read_plain_lines(path):
            record = parse_record(line.decode("utf-8", "replace"))
            if record is not None:
                yield record


class Follower:
    """Reads the records that are added to a growing file, and no record twice."""

    def __init__(self, path: Path) -> None:
        """Begin at the present end of a file, which may not exist yet."""
        self._path = path
        self._offset = 0
        with contextlib.suppress(OSError, ValueError), open_plain(path) as file:
            self._offset = file.seek(0, os.SEEK_END)

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records that were added; a line that is still being written comes later."""
        with contextlib.suppress(OSError, ValueError), open_plain(self._path) as file:
            file.seek(self._offset)
            while (line := file.readline(LONGEST_RECORD_BYTES)).endswith(b"\n"):
                self._offset += len(line)
                record = parse_record(line.decode("utf-8", "replace"))
                if record is not None:
                    yield record


def parse_record(line: str) -> dict[str, Any] | None:
    """Return the record on a line, None if it is something else."""
    try:
        record = json.loads(line)
    # An untrusted line may be nested too deeply.
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None

"""Append-only JSON lines: one record a line, readable while a run writes and after a kill."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import open_to_append
from rlzoo_plus.artifacts.untrusted import LONGEST_RECORD_BYTES, open_plain, read_plain_lines


def append_records(
    path: Path, records: Iterable[Mapping[str, Any]], *, keep_infinities: bool = False
) -> None:
    """Append records, each on a line of its own, with one write.

    Args:
        path: The file.
        records: What is added.
        keep_infinities: Write what JSON does not know as Python does, `Infinity`; else as null.

    Raises:
        OutsideError: The file is a link, or no plain file.
    """
    kept = records if keep_infinities else map(_finite, records)
    text = "".join(json.dumps(record) + "\n" for record in kept)
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        append_lines(path, text)


def append_lines(path: Path, text: str) -> None:
    """Append whole lines with one write; what is there already is not read.

    Raises:
        OutsideError: The file is a link, or no plain file.
    """
    with open_to_append(path) as file:
        # A line that a kill cut short must not swallow this one.
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            text = "\n" + text
        file.write(text.encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, see `iter_records`."""
    return list(iter_records(path))


def iter_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; what is no record is passed over, as a torn last line is.

    Without a plain file there are none.
    """
    # A FIFO would block, and a link may lead anywhere.
    with contextlib.suppress(OSError, ValueError):
        for line in read_plain_lines(path):
            record = _parse(line)
            if record is not None:
                yield record


class Follower:
    """Reads on where it stopped in a file that grows, so that a look costs only what is new."""

    def __init__(self, path: Path) -> None:
        """Begin at the present end of a file, which may not exist yet."""
        self._path = path
        with contextlib.suppress(OSError, ValueError), open_plain(path) as file:
            file.seek(0, os.SEEK_END)
            self._offset = file.tell()
            return
        self._offset = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records that were added; a line that is still being written waits."""
        with contextlib.suppress(OSError, ValueError), open_plain(self._path) as file:
            file.seek(self._offset)
            while (line := file.readline(LONGEST_RECORD_BYTES)).endswith(b"\n"):
                self._offset += len(line)
                record = _parse(line)
                if record is not None:
                    yield record


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8", "replace"))
    # A line from an untrusted source may be nested without end.
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not know, by null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

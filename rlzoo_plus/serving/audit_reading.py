"""Reads an audit log: whether it is whole, and what it says."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import (
    open_plain,
    parse_json,
    printable,
    read_json,
    read_plain_file,
)
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.audit_log import (
    DROPPED,
    END,
    FIRST_HASH,
    HEAD,
    MADE,
    audit_files,
)

_LONGEST = 2**16


@dataclass
class Verified:
    """What was found."""

    lines: int = 0
    first: int = 1
    last: int = 0
    sha256: str = FIRST_HASH  # Of the last line
    lost: int = 0  # In crashes
    dropped: int = 0  # While the queue was full
    mistakes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(folder: Path, head: str | None = None) -> Verified:
    """Check each line of a log, and its end.

    Args:
        folder: The log.
        head: The hash that some line must have: one that was noted elsewhere.

    Raises:
        ConfigError: There is no log.
    """
    found, seen_head, previous, is_torn = Verified(), head in (None, FIRST_HASH), None, False
    last: Mapping[str, Any] = {}
    for where, data in _lines(folder):
        # What a crash tore is no JSON; the next line must say so.
        line = _parsed(data)
        if line is None and not is_torn:
            is_torn, previous, torn_at = True, hashlib.sha256(data).hexdigest(), where
            continue
        if line is None or (is_torn and not line.get("torn")):
            found.mistakes.append(f"{torn_at if is_torn else where} is no line of a log")
            break
        if previous is None:
            found.first, previous = line["n"], line["prev"]
            if found.first == 1 and previous != FIRST_HASH:
                found.mistakes.append(f"{where} is not the first line")
                break
            found.last = found.first - 1
        if line["prev"] != previous:
            found.mistakes.append(
                f"{where} does not follow the one before: that was changed, or lines between were "
                "cut or reordered"
            )
            break
        lost = line["lost"] if line.get("after") == "crash" else 0
        if line["n"] != found.last + 1 + lost:
            found.mistakes.append(f"{where} has number {line['n']}, not {found.last + 1 + lost}")
            break
        previous, is_torn, last = hashlib.sha256(data).hexdigest(), False, line
        found.lines, found.last, found.sha256 = found.lines + 1, line["n"], previous
        found.lost += lost
        found.dropped += line["count"] if line.get("event") == DROPPED else 0
        seen_head = seen_head or previous == head
    if is_torn and not found.mistakes:
        found.notes.append("the last line is torn: the server was killed as it wrote")
    if not found.mistakes:
        _check_end(folder, found, last)
    if not seen_head:
        found.mistakes.append("no line has the hash of --head: lines were cut or rewritten")
    return found


def _check_end(folder: Path, found: Verified, last: Mapping[str, Any]) -> None:
    told = read_json(folder / HEAD)
    ahead = int(told.get("n", 0)) if isinstance(told.get("n", 0), int) else 0
    if ahead > found.last:
        found.mistakes.append(f"the log ends at line {found.last}, and had {ahead}: it was cut")
    elif ahead == found.last and told.get("sha256") not in (None, found.sha256):
        found.mistakes.append(f"line {found.last} is not the one that {HEAD} names")
    try:
        (made,) = struct.unpack("<Q", read_plain_file(folder / MADE, 8))
    except (OSError, ValueError, struct.error):
        made = found.last
    if found.first > 1:
        found.notes.append(f"it begins at line {found.first}: older files are elsewhere")
    if last.get("event") != END:
        waiting = max(made - found.last, 0)
        found.notes.append(
            f"a server writes it, or was killed: {waiting} lines were made and are not written"
        )
    elif made > found.last:
        found.mistakes.append(f"{made} lines were made, and {found.last} are there: it was cut")


def query(folder: Path, wanted: Mapping[str, str], since: float, until: float) -> Iterator[Any]:
    """Yield the lines of decisions and events with these values, between two times [s].

    Raises:
        ConfigError: There is no log.
    """
    for _, data in _lines(folder):
        line = _parsed(data)
        if line is None or not since <= line["timestamp"] <= until:
            continue
        if all(str(line.get(key)) == value for key, value in wanted.items()):
            yield line


def counted(lines: Iterator[Any]) -> dict[str, Counter[str]]:
    """Count lines by version, source, agent and event."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        for key in ("version", "source", "agent_id", "event"):
            if key in line:
                found.setdefault(key, Counter())[str(line[key])] += 1
    return found


def _lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    files = audit_files(folder)
    if not files:
        raise ConfigError(f"{printable(folder)} has no audit log. Name what `serve` was given.")
    number = 0
    for path in files:
        with open_plain(path) as file:
            while line := file.readline(_LONGEST):
                number += 1
                yield f"{path.name}, line {number}", line.rstrip(b"\n")
        number = 0


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Return a line with the values that are relied on, None if it is none."""
    try:
        line = parse_json(data)
    except ValueError:
        return None
    if not isinstance(line, dict) or type(line.get("n")) is not int:
        return None
    if not isinstance(line.get("prev"), str) or not isinstance(line.get("timestamp"), float | int):
        return None
    if type(line.get("lost", 0)) is not int or type(line.get("count", 0)) is not int:
        return None
    return line

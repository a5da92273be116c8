"""Append-only JSON lines: one record a line, readable while a run writes and after a kill."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records, each on a line of its own, with one write."""
    text = "".join(json.dumps(_finite(record)) + "\n" for record in records)
    if text:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            # A line that a kill cut short must not swallow this one.
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                text = "\n" + text
            file.write(text.encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, none if there is no file; a torn last line is passed over."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not know, by null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

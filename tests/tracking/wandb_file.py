"""Reading what an offline W&B run holds: its file is a LevelDB log of protobuf records."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES, HEADER_BYTES, FILE_HEADER_BYTES = 32768, 7, 7
FULL, LAST = 1, 4


def read_records(file: Path) -> Iterator[Any]:
    """Yield the records of a `.wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = file.read_bytes(), FILE_HEADER_BYTES, b""
    while at + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + HEADER_BYTES])
        at += HEADER_BYTES + size
        parts += data[at - size : at]
        if kind in (FULL, LAST):
            yield Record.FromString(parts)
            parts = b""


def read_run(folder: Path) -> dict[str, Any]:
    """Return config, history rows, summary and exit code of the one run below a folder."""
    (file,) = folder.glob("offline-run-*/*.wandb")
    run: dict[str, Any] = {"config": {}, "history": [], "summary": {}, "exit_code": None}
    for record in read_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run["config"] |= _items(record.run.config.update)
        elif kind == "history":
            run["history"].append(_items(record.history.item))
        elif kind == "summary":
            run["summary"] |= _items(record.summary.update)
        elif kind == "exit":
            run["exit_code"] = record.exit.exit_code
    return run


def _items(items: Any) -> dict[str, Any]:
    return {
        item.key or ".".join(item.nested_key): json.loads(item.value_json)
        for item in items
        if item.value_json
    }

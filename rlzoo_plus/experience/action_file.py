"""The action log of a run: what every step of its training did, in compressed columns.

A first line in JSON names the columns; then come blocks, each of which is its number of rows, its
length in bytes and its CRC-32, and the columns as `chunks` compresses them, encrypted if there is a
key. A block that a kill cut short is the last one, and ignored.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from rlzoo_plus.artifacts.chunks import MAX_CHUNK_BYTES, Column, compress, decompress
from rlzoo_plus.artifacts.encryption import Cipher, EncryptionError, decrypted, encrypted
from rlzoo_plus.artifacts.inside import open_to_append
from rlzoo_plus.artifacts.untrusted import one_line, open_plain, parse_json, printable
from rlzoo_plus.errors import ConfigError

Block = dict[str, NDArray[Any]]
# In this order: environment steps after the action, the environment, what was done, what the
# policy does without exploration, and whether the action was uniformly random.
NAMES = ("step", "env", "action", "greedy", "random")
_FORMAT = 1
_HEAD = struct.Struct("<III")
_LONGEST_HEADER, _MOST_ROWS = 2**16, 2**20


def append_block(path: Path, block: Sequence[NDArray[Any]], cipher: Cipher | None = None) -> None:
    """Append rows, a column of each of `NAMES`, all of them of the same length.

    Raises:
        OutsideError: The file is a link, or not a plain file.
        OSError: It cannot be written.
    """
    columns = [Column.of(name, part) for name, part in zip(NAMES, block, strict=True)]
    rest = encrypted(compress(block), cipher)
    with open_to_append(path) as file:
        text, size = b"", file.seek(0, os.SEEK_END)
        if not size:
            described = [[c.name, c.dtype, list(c.shape)] for c in columns]
            text = json.dumps({"format": _FORMAT, "columns": described}).encode() + b"\n"
        try:
            file.write(text + _HEAD.pack(len(block[0]), len(rest), zlib.crc32(rest)) + rest)
            file.flush()
        except OSError:
            # Part of a block must not stand before the next one.
            os.truncate(path, size)
            raise


def iter_blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of an action log, rows in the order of the training.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    try:
        with open_plain(path) as file:
            columns = _read_header(path, file)
            while (head := file.read(_HEAD.size)) and len(head) == _HEAD.size:
                rows, length, crc = _HEAD.unpack(head)
                row_bytes = sum(column.row_bytes for column in columns)
                if not 0 < rows <= _MOST_ROWS or max(rows * row_bytes, length) > MAX_CHUNK_BYTES:
                    raise _damaged(path, f"at byte {file.tell()}, no block begins")
                rest = file.read(length)
                if len(rest) < length:
                    return
                if zlib.crc32(rest) != crc:
                    raise _damaged(path, f"the block that ends at byte {file.tell()} was changed")
                try:
                    parts = decompress(decrypted(rest), columns, rows)
                except EncryptionError:
                    raise
                except ValueError as error:
                    raise _damaged(path, str(error)) from error
                yield dict(zip(NAMES, parts, strict=True))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{printable(path)}: the run has no action log. Train with log.actions=true."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{printable(path)} cannot be read: {one_line(error)}.") from error


def read_actions(path: Path) -> Block:
    """Return all rows of an action log, and `noise`, action - greedy, where that is a difference.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    blocks = list(iter_blocks(path))
    if not blocks:
        raise ConfigError(f"{printable(path)} has no rows yet. They come with each checkpoint.")
    found = {name: np.concatenate([block[name] for block in blocks]) for name in NAMES}
    if found["action"].dtype.kind == "f":
        found["noise"] = found["action"] - found["greedy"]
    return found


def _read_header(path: Path, file: BinaryIO) -> list[Column]:
    line = file.readline(_LONGEST_HEADER)
    try:
        data = parse_json(line)
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']!r} is not {_FORMAT}")
        rows = TypeAdapter(list[tuple[str, str, tuple[int, ...]]]).validate_python(data["columns"])
        columns = [Column(*row) for row in rows]
        if tuple(column.name for column in columns) != NAMES:
            raise ValueError("it has other columns")
        if math.prod((1, *columns[2].shape)) > _LONGEST_HEADER:
            raise ValueError("its actions are too long")
    except (ValidationError, ValueError, LookupError, TypeError) as error:
        raise _damaged(path, f"no action log: {one_line(error)}") from error
    return columns


def _damaged(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{printable(path)} is damaged: {printable(why)}. Nothing of it was used.")

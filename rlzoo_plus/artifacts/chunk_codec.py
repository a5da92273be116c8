"""Rows of arrays as compressed bytes, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from rlzoo_plus.artifacts.chunk_index import Column

# Longer rows are pictures, whose neighbouring bytes are better left together.
TRANSPOSED_ROW_BYTES = 4096
LEVEL, WINDOW_LOG = 3, 22


def compress(parts: Sequence[NDArray[Any]]) -> bytes:
    """Return the same rows of several columns as bytes."""
    raw = b"".join(_encode(part) for part in parts)
    # A window over the whole chunk: most of the next observations are in the observations.
    parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)


def decompress(data: bytes, columns: Sequence[Column], rows: int) -> list[NDArray[Any]]:
    """Return the rows of each column.

    Args:
        data: Bytes that may come from anywhere.
        columns: What a row consists of.
        rows: How many rows they hold.

    Raises:
        ValueError: They hold something else; nothing larger was allocated.
    """
    size = rows * sum(column.row_bytes for column in columns)
    try:
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != size:
            raise ValueError(f"holds {claimed} bytes where {size} belong")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(raw) != size:
        raise ValueError(f"holds {len(raw)} bytes where {size} belong")
    parts, offset = [], 0
    for column in columns:
        end = offset + rows * column.row_bytes
        parts.append(_decode(memoryview(raw)[offset:end], column, rows))
        offset = end
    return parts


def _encode(rows: NDArray[Any]) -> bytes:
    """Return the bytes of rows; the n-th bytes of all rows side by side, as they are alike."""
    flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    return (flat if flat.shape[1] > TRANSPOSED_ROW_BYTES else flat.T).tobytes()


def _decode(raw: memoryview, column: Column, rows: int) -> NDArray[Any]:
    flat = np.frombuffer(raw, np.uint8)
    if column.dtype == "|b1" and flat.size and flat.max() > 1:
        raise ValueError(f"{column.name} is neither true nor false")
    if column.row_bytes <= TRANSPOSED_ROW_BYTES:
        flat = np.ascontiguousarray(flat.reshape(column.row_bytes, rows).T)
    return flat.reshape(-1).view(column.dtype).reshape(rows, *column.shape)

"""The chunk index, which says which chunks hold which rows, and the compression of a chunk."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from rlzoo_plus.artifacts.atomic import DamagedFolderError

# More than any buffer has; an index from the disk must not make a reader allocate without bound.
MAX_CHUNK_BYTES = 256 * 1024**2
_DTYPE = re.compile(r"\|b1|\|[iu]1|[<>]([iu][248]|f[248])")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Column:
    """An array's name, type as NumPy spells it (`<f4`), and shape without the rows."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> Column:
        """Describe an array.

        Raises:
            TypeError: It holds something else than bools, integers or floats.
        """
        if not _DTYPE.fullmatch(array.dtype.str):
            raise TypeError(f"{name}: rows of {array.dtype} cannot be stored")
        return cls(name, array.dtype.str, array.shape[1:])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class ChunkIndex:
    """What was saved of a set of columns.

    Attributes:
        rows_per_chunk: Rows in every chunk but the last, a power of two.
        used: Rows that were in use, from row 0.
        columns: What a row consists of.
        names: SHA-256 hash of each chunk's file, which is its name.
        sizes: Bytes of each chunk's file.
    """

    rows_per_chunk: int
    used: int
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all columns."""
        return sum(column.row_bytes for column in self.columns)

    def fits(self, columns: tuple[Column, ...], rows_per_chunk: int) -> bool:
        """Return whether rows of these columns are cut into the same chunks."""
        return (self.columns, self.rows_per_chunk) == (columns, rows_per_chunk)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> ChunkIndex:
        """Read JSON data that may come from anywhere.

        Raises:
            DamagedFolderError: It is not what `to_dict` writes.
        """
        try:
            columns = tuple(_read_column(column) for column in data["columns"])
            index = cls(
                data["rows_per_chunk"],
                data["used"],
                columns,
                tuple(data["names"]),
                tuple(data["sizes"]),
            )
            mistake = _find_mistake(index)
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedFolderError(f"an index of chunks is malformed: {error!r}") from error
        if mistake:
            raise DamagedFolderError(f"an index of chunks is malformed: {mistake}")
        return index


def _read_column(data: Mapping[str, Any]) -> Column:
    column = Column(data["name"], data["dtype"], tuple(data["shape"]))
    if type(column.name) is not str or not _DTYPE.fullmatch(column.dtype):
        raise TypeError("column")
    if len(column.shape) > 16 or not all(_is_count(size, 2**31) for size in column.shape):
        raise TypeError("shape")
    return column


def _find_mistake(index: ChunkIndex) -> str | None:
    rows, used = index.rows_per_chunk, index.used
    if not _is_count(rows, 2**31) or rows.bit_count() != 1:
        return "rows_per_chunk"
    if not _is_count(used, 2**40) or len(index.names) != -(-used // rows):
        return "used"
    if len({column.name for column in index.columns}) != len(index.columns):
        return "columns"
    chunk_bytes = min(rows, used) * index.row_bytes
    if chunk_bytes > MAX_CHUNK_BYTES:
        return "columns"
    if not all(type(name) is str and _HASH.fullmatch(name) for name in index.names):
        return "names"
    # Incompressible data grows by its frame alone.
    largest = chunk_bytes + chunk_bytes // 128 + 1024
    if len(index.sizes) != len(index.names):
        return "sizes"
    return None if all(_is_count(size, largest) for size in index.sizes) else "sizes"


def _is_count(value: Any, largest: int) -> bool:
    # Not isinstance: True is an int.
    return type(value) is int and 0 <= value <= largest


# Longer rows are images, whose neighbouring bytes are better left together.
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

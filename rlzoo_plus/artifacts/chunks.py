"""Chunks: the rows of large arrays as compressed files named by their content.

A replay buffer is a set of columns, arrays whose first dimension is the row. Its rows are cut
into chunks of a fixed number of rows. A save writes only the chunks that changed since the last
save and refers to the others. A chunk's name is the SHA-256 hash of the file's bytes: a file is
either intact or known to be damaged, and never has to be changed.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from rlzoo_plus.artifacts.atomic import DamagedFolderError, sync_folder, write_synced
from rlzoo_plus.artifacts.encryption import OVERHEAD_BYTES, Cipher, decrypted, encrypted
from rlzoo_plus.artifacts.untrusted import one_line, read_plain_file

# Of raw rows: small, because the chunk being filled is written again at each save.
CHUNK_BYTES = 512 * 1024
# Images: so many rows even if that is more bytes, for fewer files.
IMAGE_ROWS, IMAGE_CHUNK_BYTES = 64, 4 * 1024 * 1024
MOST_CHUNKS = 16_384
# More than any buffer has; an index from the disk must not make a reader allocate without bound.
MAX_CHUNK_BYTES = 256 * 1024**2
# What a snapshot copies at most; chunks beyond it are compressed at once.
COPIED_BYTES = 1024**3
# Longer rows are images, whose neighbouring bytes are better left together.
TRANSPOSED_ROW_BYTES = 4096
LEVEL, WINDOW_LOG = 3, 22
_CHUNK_NAME = re.compile(r"[0-9a-f]{64}")
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.tmp")

# Strict: True must not pass for 1.
_Size = Annotated[int, Field(strict=True, ge=0, le=2**31)]
_Dtype = Annotated[str, Field(pattern=r"^(\|b1|\|[iu]1|[<>]([iu][248]|f[248]))$")]


@checked_dataclass(frozen=True)
class Column:
    """An array's name, type as NumPy spells it (`<f4`), and shape without the rows."""

    name: str
    dtype: _Dtype
    shape: Annotated[tuple[_Size, ...], Field(max_length=16)]

    @classmethod
    def of(cls, name: str, array: NDArray[Any]) -> Column:
        """Describe an array.

        Raises:
            TypeError: It holds something other than bools, integers or floats.
        """
        try:
            return cls(name, array.dtype.str, array.shape[1:])
        except ValidationError as error:
            raise TypeError(f"{name}: rows of {array.dtype} cannot be stored") from error

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@checked_dataclass(frozen=True)
class ChunkIndex:
    """The saved chunks of a set of columns; checked, as a manifest is untrusted."""

    rows_per_chunk: _Size  # in every chunk but the last, a power of two
    used: Annotated[int, Field(strict=True, ge=0, le=2**40)]  # rows in use, from row 0
    columns: tuple[Column, ...]  # of each row
    names: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...]  # file names: SHA-256
    sizes: tuple[_Size, ...]  # of the files [bytes]
    key_id: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = ""  # that encrypted them

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all columns."""
        return sum(column.row_bytes for column in self.columns)

    @classmethod
    def from_dict(cls, data: Any) -> ChunkIndex:
        """Read JSON data of an untrusted source.

        Raises:
            DamagedFolderError: It is no index of chunks.
        """
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            reason = f"an index of chunks is malformed: {one_line(error)}"
            raise DamagedFolderError(reason) from error

    @model_validator(mode="after")
    def _check(self) -> ChunkIndex:
        rows, chunk_bytes = (
            self.rows_per_chunk,
            min(self.rows_per_chunk, self.used) * self.row_bytes,
        )
        fits = (
            rows.bit_count() == 1
            and len(self.names) == len(self.sizes) == -(-self.used // rows)
            and len({column.name for column in self.columns}) == len(self.columns)
            and chunk_bytes <= MAX_CHUNK_BYTES
            # Incompressible data grows by its frame alone.
            and max(self.sizes, default=0)
            <= chunk_bytes + chunk_bytes // 128 + 1024 + OVERHEAD_BYTES
        )
        if not fits:
            raise ValueError("its rows, columns and chunks do not fit together")
        return self


def compress(parts: Iterable[NDArray[Any]]) -> bytes:
    """Return the same rows of several columns as bytes."""
    raw = []
    for part in parts:
        flat = np.ascontiguousarray(part).view(np.uint8).reshape(len(part), -1)
        # The n-th bytes of all rows side by side, as they are alike.
        raw.append((flat if flat.shape[1] > TRANSPOSED_ROW_BYTES else flat.T).tobytes())
    # A window over the whole chunk: most of the next observations are in the observations.
    parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(b"".join(raw))


def decompress(data: bytes, columns: Sequence[Column], rows: int) -> list[NDArray[Any]]:
    """Return the rows of each column; the bytes come from an untrusted source.

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
        flat = np.frombuffer(raw, np.uint8, rows * column.row_bytes, offset)
        offset += flat.size
        if column.dtype == "|b1" and flat.size and flat.max() > 1:
            raise ValueError(f"{column.name} is neither true nor false")
        if column.row_bytes <= TRANSPOSED_ROW_BYTES:
            flat = np.ascontiguousarray(flat.reshape(column.row_bytes, rows).T)
        parts.append(flat.reshape(-1).view(column.dtype).reshape(rows, *column.shape))
    return parts


@dataclass(frozen=True)
class PendingChunks:
    """Rows copied out of their arrays, to be written later; see `ChunkIndex`."""

    rows_per_chunk: int
    used: int
    columns: tuple[Column, ...]
    reused: Mapping[int, tuple[str, int]]  # number to name and size of chunks on the disk
    copied: Mapping[int, bytes | tuple[NDArray[Any], ...]]  # others: their rows, or compressed


class ChunkStore:
    """The chunks in one folder; a single process writes, any number read."""

    def __init__(
        self, root: Path, rows_per_chunk: int | None = None, cipher: Cipher | None = None
    ) -> None:
        """Name the folder.

        Args:
            root: The folder.
            rows_per_chunk: A power of two; None chooses it by a row's size.
            cipher: What encrypts new chunks.
        """
        self.root = root
        self.rows_per_chunk = rows_per_chunk
        self.cipher = cipher

    def snapshot(
        self,
        columns: Mapping[str, NDArray[Any]],
        used: int,
        changed: Sequence[range] | None,
        previous: ChunkIndex | None,
    ) -> PendingChunks:
        """Copy the rows that the next save has to write; nothing is written yet.

        Args:
            columns: The arrays by name, shape (rows, ...).
            used: Rows in use, from row 0.
            changed: Rows that were written since `previous` was saved; None for any of them.
            previous: What the last save wrote; None if there is none.

        Raises:
            TypeError: A column holds something other than bools, integers or floats.
            ValueError: A column has fewer than `used` rows, or there is none.
        """
        layout = tuple(Column.of(name, array) for name, array in columns.items())
        lengths = [len(array) for array in columns.values()]
        if not layout or not 0 <= used <= min(lengths):
            raise ValueError(f"{used} rows are in use, of arrays with {lengths} rows")
        rows = self.rows_per_chunk or _choose_rows(sum(c.row_bytes for c in layout), max(lengths))
        reused: dict[int, tuple[str, int]] = {}
        if previous is not None and changed is not None:
            before = (previous.columns, previous.rows_per_chunk, previous.key_id)
            is_alike = before == (layout, rows, self._key_id)
            reused = self._unchanged(previous, used, changed) if is_alike else {}
        copied: dict[int, bytes | tuple[NDArray[Any], ...]] = {}
        budget = COPIED_BYTES
        for number, start in enumerate(range(0, used, rows)):
            if number not in reused:
                parts = tuple(array[start : min(start + rows, used)] for array in columns.values())
                budget -= sum(part.nbytes for part in parts)
                copied[number] = tuple(map(np.copy, parts)) if budget >= 0 else compress(parts)
        return PendingChunks(rows, used, layout, reused, copied)

    def write(self, pending: PendingChunks) -> ChunkIndex:
        """Write what a snapshot copied durably to the disk; any thread may do it.

        Raises:
            OSError: It cannot be written, or a chunk to be used again has vanished.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        stored = dict(pending.reused)
        for number, content in pending.copied.items():
            plain = content if isinstance(content, bytes) else compress(content)
            data = encrypted(plain, self.cipher)
            name = hashlib.sha256(data).hexdigest()
            stored[number] = (name, len(data))
            try:
                self._get(name, len(data))
            except DamagedFolderError:
                temporary = self.root / f".{name}.{os.getpid()}.tmp"
                write_synced(temporary, data)
                os.replace(temporary, self.root / name)
        for name, size in pending.reused.values():
            if not self._is_there(name, size):
                # The next snapshot misses it too, and copies its rows.
                raise FileNotFoundError(f"{self.root / name}: vanished since the last save")
        sync_folder(self.root)
        entries = [stored[number] for number in range(len(stored))]
        names, sizes = tuple(name for name, _ in entries), tuple(size for _, size in entries)
        return ChunkIndex(
            pending.rows_per_chunk, pending.used, pending.columns, names, sizes, self._key_id
        )

    @property
    def _key_id(self) -> str:
        return "" if self.cipher is None else self.cipher.key_id

    def verify(self, index: ChunkIndex) -> None:
        """Check every byte of the chunks.

        Raises:
            DamagedFolderError: One is missing, changed, or not a plain file.
        """
        for name, size in set(zip(index.names, index.sizes, strict=True)):
            self._get(name, size)

    def read(self, index: ChunkIndex, columns: Mapping[str, NDArray[Any]]) -> None:
        """Fill the rows in use, and leave those beyond them as they are.

        Raises:
            DamagedFolderError: A chunk is damaged, or does not fit; some rows may be filled.
        """
        layout = {Column.of(name, array) for name, array in columns.items()}
        rows = min((len(array) for array in columns.values()), default=0)
        if layout != set(index.columns) or rows < index.used:
            raise DamagedFolderError(f"{self.root}: the saved rows do not fit these arrays")
        for number, (name, size) in enumerate(zip(index.names, index.sizes, strict=True)):
            start = number * index.rows_per_chunk
            stop = min(start + index.rows_per_chunk, index.used)
            data = self._get(name, size)
            try:
                parts = decompress(decrypted(data), index.columns, stop - start)
            except ValueError as error:
                raise DamagedFolderError(f"{self.root / name}: {error}") from error
            for column, part in zip(index.columns, parts, strict=True):
                columns[column.name][start:stop] = part

    def collect_garbage(self, live: Iterable[ChunkIndex]) -> int:
        """Delete the chunks that no index names, and the leftovers of killed writers.

        Returns:
            How many files were deleted.
        """
        names = {name for index in live for name in index.names}
        garbage = [
            path
            for path in (self.root.iterdir() if self.root.is_dir() else ())
            if _TEMPORARY_NAME.fullmatch(path.name)
            or (_CHUNK_NAME.fullmatch(path.name) and path.name not in names)
        ]
        for path in garbage:
            path.unlink(missing_ok=True)
        return len(garbage)

    def _unchanged(
        self, previous: ChunkIndex, used: int, changed: Sequence[range]
    ) -> dict[int, tuple[str, int]]:
        """Return name and size of the saved chunks that still hold what the arrays hold."""
        rows = previous.rows_per_chunk
        dirty: set[int] = set()
        for touched in filter(None, changed):
            first, last = sorted((touched[0], touched[-1]))
            dirty.update(range(first // rows, last // rows + 1))
        if used != previous.used:
            # The last chunk of the shorter one has another number of rows in the longer.
            dirty.add(min(used, previous.used) // rows)
        entries = zip(previous.names[: -(-used // rows)], previous.sizes, strict=False)
        return {
            number: entry
            for number, entry in enumerate(entries)
            if number not in dirty and self._is_there(*entry)
        }

    def _is_there(self, name: str, size: int) -> bool:
        try:
            info = (self.root / name).lstat()
        except OSError:
            return False
        return stat.S_ISREG(info.st_mode) and info.st_size == size

    def _get(self, name: str, size: int) -> bytes:
        path = self.root / name
        if not self._is_there(name, size):
            raise DamagedFolderError(f"{path}: missing, or cut short")
        try:
            data = read_plain_file(path, size)
        except (OSError, ValueError) as error:
            raise DamagedFolderError(f"{path}: {error}") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise DamagedFolderError(f"{path}: was changed")
        return data


def _choose_rows(row_bytes: int, most: int) -> int:
    """Return a power of two: rows of about half a megabyte, of more if a row is an image."""
    row_bytes = max(row_bytes, 8)
    rows = max(CHUNK_BYTES // row_bytes, min(IMAGE_ROWS, IMAGE_CHUNK_BYTES // row_bytes), 1)
    # Every chunk has a line in the manifest.
    rows = max(rows, 2 * most // MOST_CHUNKS)
    return 1 << (rows.bit_length() - 1)

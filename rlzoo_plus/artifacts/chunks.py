"""Chunks: the rows of large arrays as compressed files named by their content.

A replay buffer is a set of columns, arrays whose first dimension is the row. Its rows are cut
into chunks of a fixed number of rows; a save writes only the chunks that changed since the save
before, and both refer to the others. A chunk's name is the SHA-256 hash of the file's bytes, so
that a file is either right or known to be damaged, and never has to be changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.artifacts.atomic import DamagedFolderError, sync_folder
from rlzoo_plus.artifacts.chunk_index import ChunkIndex, Column, compress, decompress
from rlzoo_plus.artifacts.untrusted import read_plain_file

# Of raw rows: small, because the chunk being filled is written again at each save.
CHUNK_BYTES = 512 * 1024
# Images: so many rows even if that is more bytes, for fewer files.
IMAGE_ROWS, IMAGE_CHUNK_BYTES = 64, 4 * 1024 * 1024
MOST_CHUNKS = 16_384
# What a snapshot copies at most; chunks beyond it are compressed at once.
COPIED_BYTES = 1024**3
_CHUNK_NAME = re.compile(r"[0-9a-f]{64}")
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.tmp")


@dataclass(frozen=True)
class PendingChunks:
    """Rows copied out of their arrays, to be written at leisure.

    Attributes:
        rows_per_chunk: Rows in every chunk but the last.
        used: Rows in use, from row 0.
        columns: What a row consists of.
        reused: Name and size of the chunks that are on the disk already, by their number.
        copied: The columns' rows of each other chunk, or its compressed bytes.
    """

    rows_per_chunk: int
    used: int
    columns: tuple[Column, ...]
    reused: Mapping[int, tuple[str, int]]
    copied: Mapping[int, bytes | tuple[NDArray[Any], ...]]


class ChunkStore:
    """The chunks in one folder; a single process writes, any number read."""

    def __init__(self, root: Path, rows_per_chunk: int | None = None) -> None:
        """Name the folder; it is made by the first write.

        Args:
            root: The folder.
            rows_per_chunk: A power of two; None chooses it by the size of a row.
        """
        self.root = root
        self.rows_per_chunk = rows_per_chunk

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
            previous: What the save before wrote; None if there is none.

        Raises:
            TypeError: A column holds something else than bools, integers or floats.
            ValueError: A column has fewer than `used` rows, or there is none.
        """
        layout = tuple(Column.of(name, array) for name, array in columns.items())
        lengths = [len(array) for array in columns.values()]
        if not layout or not 0 <= used <= min(lengths):
            raise ValueError(f"{used} rows are in use, of arrays with {lengths} rows")
        rows = self.rows_per_chunk or _choose_rows(sum(c.row_bytes for c in layout), max(lengths))
        reused: dict[int, tuple[str, int]] = {}
        if previous is not None and changed is not None and previous.fits(layout, rows):
            reused = self._unchanged(previous, used, changed)
        copied: dict[int, bytes | tuple[NDArray[Any], ...]] = {}
        budget = COPIED_BYTES
        for number, start in enumerate(range(0, used, rows)):
            if number not in reused:
                stop = min(start + rows, used)
                parts = tuple(array[start:stop] for array in columns.values())
                budget -= sum(part.nbytes for part in parts)
                copied[number] = tuple(map(np.copy, parts)) if budget >= 0 else compress(parts)
        return PendingChunks(rows, used, layout, reused, copied)

    def write(self, pending: PendingChunks) -> ChunkIndex:
        """Write what a snapshot copied, to the disk's surface; any thread may do it.

        Raises:
            OSError: It cannot be written, or a chunk to be used again has vanished.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        stored = dict(pending.reused)
        for number, content in pending.copied.items():
            data = content if isinstance(content, bytes) else compress(content)
            stored[number] = (self._put(data), len(data))
        for name, size in pending.reused.values():
            if not self._is_there(name, size):
                # The next snapshot misses it too, and copies its rows.
                raise FileNotFoundError(f"{self.root / name}: vanished since the save before")
        sync_folder(self.root)
        entries = [stored[number] for number in range(len(stored))]
        return ChunkIndex(
            pending.rows_per_chunk,
            pending.used,
            pending.columns,
            tuple(name for name, _ in entries),
            tuple(size for _, size in entries),
        )

    def verify(self, index: ChunkIndex) -> None:
        """Check every byte of the chunks.

        Raises:
            DamagedFolderError: One is missing, changed, or no plain file.
        """
        for name, size in set(zip(index.names, index.sizes, strict=True)):
            self._get(name, size)

    def read(self, index: ChunkIndex, columns: Mapping[str, NDArray[Any]]) -> None:
        """Fill the rows in use, and leave those beyond them as they are.

        Args:
            index: What `write` returned.
            columns: Arrays of the saved names, types and row shapes, with enough rows.

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
                parts = decompress(data, index.columns, stop - start)
            except ValueError as error:
                raise DamagedFolderError(f"{self.root / name}: {error}") from error
            for column, part in zip(index.columns, parts, strict=True):
                columns[column.name][start:stop] = part

    def collect_garbage(self, live: Iterable[ChunkIndex]) -> int:
        """Delete the chunks that no index names, and what killed writers left.

        Returns:
            How many files were deleted.
        """
        if not self.root.is_dir():
            return 0
        names = {name for index in live for name in index.names}
        garbage = [
            path
            for path in self.root.iterdir()
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
        for touched in changed:
            if touched:
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

    def _put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        try:
            self._get(name, len(data))
        except DamagedFolderError:
            temporary = self.root / f".{name}.{os.getpid()}.tmp"
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.root / name)
        return name


def _choose_rows(row_bytes: int, most: int) -> int:
    """Return a power of two: rows of about half a megabyte, of more if a row is an image."""
    row_bytes = max(row_bytes, 8)
    rows = max(CHUNK_BYTES // row_bytes, min(IMAGE_ROWS, IMAGE_CHUNK_BYTES // row_bytes), 1)
    # Every chunk has a line in the manifest.
    rows = max(rows, 2 * most // MOST_CHUNKS)
    return 1 << (rows.bit_length() - 1)

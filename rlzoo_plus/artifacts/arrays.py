"""Reads NumPy's .npz as plain numbers: no pickle, and no more memory than the file holds."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Collection
from typing import BinaryIO

import numpy as np

_MOST_ARRAYS = 1000
_MAGIC = re.compile(rb"\x93NUMPY(?:\x01\x00..|[\x02\x03]\x00....)", re.DOTALL)
# As NumPy writes it. NumPy's own reader parses Python, and gives up on some in a traceback.
_HEADER = re.compile(
    rb"\{'descr': '([<>|]?[biuf][0-9]{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}(?:, ?|(?=\))))*)\), ?\} *\n"
)


def read_arrays(
    file: BinaryIO, largest: int, names: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the arrays of numbers in an .npz by name.

    Args:
        file: The opened file.
        largest: The most bytes that all arrays may have.
        names: Those that are wanted; None: all.

    Raises:
        ValueError: It is damaged, too large, or holds something else than numbers.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_ARRAYS or sum(e.file_size for e in entries) > largest:
                raise ValueError("its arrays are too many or too large")
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                if names is None or name in names:
                    arrays[name] = _array_of(entry.filename, archive.read(entry))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is no whole .npz: {error}") from error
    return arrays


def _array_of(name: str, data: bytes) -> np.ndarray:
    magic = _MAGIC.match(data)
    header = None if magic is None else _HEADER.match(data, magic.end())
    if header is None:
        raise ValueError(f"{name} is no array of plain numbers")
    kind, is_fortran, sizes = (part.decode() for part in header.groups())
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    try:
        dtype = np.dtype(kind)
    except TypeError as error:
        raise ValueError(f"{name} is of {kind}, which is no kind of number") from error
    if math.prod(shape) * dtype.itemsize != len(data) - header.end():
        raise ValueError(f"{name} is cut short, or longer than its header says")
    numbers = np.frombuffer(data, dtype, offset=header.end())
    return numbers.reshape(shape, order="F" if is_fortran == "True" else "C")

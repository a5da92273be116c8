"""Uncompressed zips: the same files make the same bytes, and an untrusted one is read safely."""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rlzoo_plus.artifacts.atomic import MOST_FILES, DamagedFolderError
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.store.contract import is_name

# zipfile reads the whole directory of a zip at once, however large it claims to be.
_LARGEST_READ = 2**22
_UNIX = 3


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of files by name; nothing in it depends on the clock or the system."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            # A ZipInfo of its own has no time.
            info = zipfile.ZipInfo(name)
            info.create_system = _UNIX
            archive.writestr(info, data)
    return packed.getvalue()


def unzip(path: Path, folder: Path, *, nested: bool = False) -> None:
    """Write the files of an untrusted zip into a new folder.

    The folder must not exist; with `nested`, files may be in folders of it.

    Raises:
        DamagedFolderError: It is no zip as `zip_files` makes it: names must be plain, sizes no
            larger than the zip itself, and each name that of a plain file.
    """
    size = path.stat().st_size
    try:
        with _BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _check(path, entries, size, nested=nested)
            folder.mkdir(parents=True)
            for entry in entries:
                place = folder / entry.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, place.open("xb") as target:
                    shutil.copyfileobj(source, target, 2**20)
    # What zipfile raises for a damaged, encrypted or odd file.
    except (
        *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
        *(RuntimeError, ValueError, OverflowError),
    ) as error:
        raise DamagedFolderError(f"{path.name}: {one_line(error)}") from error


def _check(path: Path, entries: list[zipfile.ZipInfo], size: int, *, nested: bool) -> None:
    names = {entry.filename for entry in entries}
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    is_ours = (
        len(names) == len(entries) <= MOST_FILES
        and all(is_name(name) and (nested or "/" not in name) for name in names)
        # No file is also a folder.
        and not names & folders
        and all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        and all(stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG) for entry in entries)
        and sum(entry.file_size for entry in entries) <= size
    )
    if not is_ours:
        raise DamagedFolderError(f"{path.name} is no zip as rlzoo_plus writes it")


class _BoundedFile(io.FileIO):
    """A file whose reads and places are bounded: a forged zip claims both."""

    def read(self, size: int | None = -1) -> bytes:
        wanted = _LARGEST_READ + 1 if size is None or size < 0 else size
        if wanted > _LARGEST_READ + 1:
            raise ValueError("its directory is too large")
        return super().read(wanted) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if abs(offset) > os.fstat(self.fileno()).st_size:
            raise ValueError("it names a place outside of the file")
        return super().seek(offset, whence)

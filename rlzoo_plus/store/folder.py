"""A store in a folder, such as a disk that several machines mount."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from rlzoo_plus.artifacts.atomic import sync_folder
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import path_problem
from rlzoo_plus.artifacts.untrusted import open_plain, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import Check, Entry, StoreError, check_name, is_name, open_source

# Hidden: neither locks nor files that are being written are objects.
_HIDDEN = "."
_CLOCK, _NEW = ".clock", ".new"
_PATIENCE_S = 20.0
# No write takes as long: what a killed process left.
_LEFT_AFTER_S = 86_400.0


def _tag(info: os.stat_result) -> str:
    # Each write makes a new file, so the same content twice has two tags.
    return f"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}"


def _mark(path: Path) -> str:
    """Give a new file a tag that no other has had, and return it."""
    info = path.stat()
    # Number, size and coarse time of a file come again; the nanoseconds tell the files apart.
    drawn_ns = info.st_mtime_ns + secrets.randbelow(10**6)
    os.utime(path, ns=(info.st_atime_ns, drawn_ns))
    return _tag(path.stat())


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that does not exist; it is removed if writing it fails."""
    with path.open("xb") as file:
        try:
            yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class FolderStore:
    """Objects as files of a folder; conditional writes take a lock beside the file."""

    def __init__(self, url: str) -> None:
        """Name the folder; the first write makes it."""
        self.root = Path(url)
        self.url = str(self.root)
        self._is_tidy = False

    def get(self, name: str, largest: int) -> tuple[bytes, str] | None:
        """Return content and tag of an object; see `ArtifactStore`."""
        with self._errors(name):
            try:
                with open_plain(self._path(name)) as file:
                    info = os.fstat(file.fileno())
                    self._check_size(name, info.st_size, largest)
                    # Not more, should it grow meanwhile.
                    return file.read(info.st_size), _tag(info)
            except FileNotFoundError:
                return None

    def get_tail(self, name: str, most: int) -> bytes | None:
        """Return the last bytes of an object; see `ArtifactStore`."""
        with self._errors(name):
            try:
                with open_plain(self._path(name)) as file:
                    file.seek(max(os.fstat(file.fileno()).st_size - most, 0))
                    return file.read(most)
            except FileNotFoundError:
                return None

    def get_file(self, name: str, path: Path, largest: int) -> bool:
        """Write an object to a new file; see `ArtifactStore`."""
        with self._errors(name):
            try:
                with open_plain(self._path(name)) as file:
                    self._check_size(name, os.fstat(file.fileno()).st_size, largest)
                    with _new_file(path) as target:
                        shutil.copyfileobj(file, target, 2**20)
            except FileNotFoundError:
                return False
            return True

    def put(self, name: str, data: bytes | Path, check: Check | None = None) -> None:
        """Write an object, or replace it; see `ArtifactStore`."""
        with self._errors(name):
            self._replace(self._path(name), data, check)

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Write an object that does not exist; see `ArtifactStore`."""
        return self._put_if(name, data, None)

    def put_if_unchanged(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace the content that has this tag; see `ArtifactStore`."""
        return self._put_if(name, data, tag)

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects below a prefix, by name; see `ArtifactStore`."""
        with self._errors(prefix.removesuffix("/")):
            # Reading makes no folder.
            if not self.root.is_dir():
                return
            now = self._now()
            yield from self._walk(self._path(prefix.removesuffix("/")), prefix, now)

    def check_settings(self) -> None:
        """Make the folder; see `ArtifactStore`."""
        problem = path_problem(self.root)
        try:
            if problem is None:
                self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            is_file = isinstance(error, (FileExistsError, NotADirectoryError))
            problem = "there is a file" if is_file else str(error.strerror)
        if problem is None and not os.access(self.root, os.W_OK | os.X_OK):
            problem = "it cannot be written to"
        if problem is not None:
            raise ConfigError(
                f"store={printable(self.url)} cannot be used: {problem}. Choose another folder, "
                "s3://bucket/prefix, or store=null."
            )

    def _walk(self, folder: Path, prefix: str, now: float) -> Iterator[Entry]:
        try:
            found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            name = prefix + entry.name
            if entry.name.startswith(_HIDDEN) or entry.is_symlink() or not is_name(name):
                continue
            if entry.is_dir():
                yield from self._walk(Path(entry.path), f"{name}/", now)
            else:
                with contextlib.suppress(FileNotFoundError):
                    info = os.stat(entry.path, follow_symlinks=False)
                    age = max(now - info.st_mtime, 0.0)
                    yield Entry(name, info.st_size, _tag(info), age)

    def _now(self) -> float:
        """Return the time of the file system, which may be another machine's."""
        clock = self.root / f"{_CLOCK}-{secrets.token_hex(8)}"
        try:
            clock.open("xb").close()
            return clock.stat().st_mtime
        except PermissionError:
            # A folder that one may only read tells its age, too.
            return self.root.stat().st_mtime
        finally:
            clock.unlink(missing_ok=True)

    def _put_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        with self._errors(name):
            path = self._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f".{path.name}.lock")
            # Acquiring a lock opens its file for writing.
            check_inside(self.root, lock)
            with FileLock(lock, timeout=_PATIENCE_S):
                found = _tag(path.lstat()) if path.exists() else None
                return self._replace(path, data) if found == tag else None

    def _replace(self, path: Path, data: bytes | Path, check: Check | None = None) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._new_path()
        with _new_file(temporary) as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                with open_source(data) as source:
                    shutil.copyfileobj(source, file, 2**20)
            file.flush()
            os.fsync(file.fileno())
        try:
            tag = _mark(temporary)
            if check is not None:
                check()
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        return tag

    def _new_path(self) -> Path:
        """Return a path for a file that is being written: one folder has all, so none is lost."""
        folder = self.root / _NEW
        folder.mkdir(exist_ok=True)
        if not self._is_tidy:
            self._is_tidy = True
            now = self._now()
            for left in (*folder.iterdir(), *self.root.glob(f"{_CLOCK}-*")):
                with contextlib.suppress(OSError):
                    if now - left.lstat().st_mtime > _LEFT_AFTER_S:
                        left.unlink()
        return folder / secrets.token_hex(16)

    def _path(self, name: str) -> Path:
        path = self.root / name
        check_inside(self.root, path)
        return path

    def _check_size(self, name: str, size: int, largest: int) -> None:
        if size > largest:
            raise StoreError(f"{self.url}/{name} has {size} bytes, more than the {largest} allowed")

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        check_name(name)
        try:
            yield
        # ValueError: what is there is no plain file. It includes an `OutsideError`.
        except (OSError, Timeout, ValueError) as error:
            raise StoreError(f"{self.url}/{name}: {error}") from error

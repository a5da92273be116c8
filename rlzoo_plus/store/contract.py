"""The contract of artifact stores: named objects, each written whole, on a folder or on S3."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from rlzoo_plus.artifacts.untrusted import open_plain, printable
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.registry import Registry

Check = Callable[[], None]
T = TypeVar("T")
R = TypeVar("R")
# Requests to a store at once.
CONNECTIONS = 32
# Imported when one is opened.
_STORES = Registry(
    "store",
    "store",
    {"s3": "rlzoo_plus.store.s3:S3Store", "folder": "rlzoo_plus.store.folder:FolderStore"},
)
# Bytes of a name, and of each of its parts: files beside it have that name, and more.
LONGEST_NAME, LONGEST_PART = 900, 220
# Files of that name exist on every system; a leading dot is for what is no object.
_PART = re.compile(r"[^\s./\\:*?\"<>|](?:[^/\\:*?\"<>|]*[^\s./\\:*?\"<>|])?")


class StoreError(RunError):
    """A request that failed for now: the network, the server or a permission; safe to print."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


@dataclass(frozen=True)
class Entry:
    """An object in a listing."""

    name: str  # its name below the store's URL
    size: int  # its size [bytes]
    tag: str  # changes with the content; what `put_if_unchanged` compares
    age_s: float  # time since it was written, by the clock of the store alone [s]


class ArtifactStore(Protocol):
    """Objects by name, such as `runs/a/config.yaml`; a reader sees the old content or the new.

    All methods may be called from several threads. They raise `StoreError` if a request failed;
    the same call may then be made again.

    Attributes:
        url: Where the store is: `s3://bucket/prefix` or a folder's path.
    """

    url: str

    def get(self, name: str, largest: int) -> tuple[bytes, str] | None:
        """Return content and tag of an object, or None if there is none.

        Args:
            name: The object.
            largest: The most bytes it may have; a larger one is a `StoreError`.
        """

    def get_tail(self, name: str, most: int) -> bytes | None:
        """Return the last bytes of an object, however large it is; None if there is none.

        Args:
            name: The object.
            most: How many bytes; all of a smaller object.
        """

    def get_file(self, name: str, path: Path, largest: int) -> bool:
        """Write an object to a new file; return whether there is one.

        Args:
            name: The object.
            path: A path that does not exist; no file is left there after an error.
            largest: The most bytes it may have.
        """

    def put(self, name: str, data: bytes | Path, check: Check | None = None) -> None:
        """Write an object, or replace it.

        Args:
            name: The object.
            data: Its content, or the file that has it; of one that grows, what it had at first.
            check: Called as late as possible, before each request that is sent: a process that was
                frozen on the way must not write what it meant to write then. Raises to stop it.
        """

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Write an object that does not exist; return its tag, or None if it exists.

        Of several writers at once, one gets a tag.
        """

    def put_if_unchanged(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace the content that has this tag; return the new tag, or None if it has another."""

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose name begins with a prefix that ends in a slash, by name."""

    def check_settings(self) -> None:
        """Check what can be checked without the store itself.

        Raises:
            ConfigError: A folder cannot be made or written, or there are no credentials for S3.
        """


@contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is sent to a store.

    Raises:
        StoreError: It is a link, or no plain file.
    """
    try:
        file = open_plain(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be sent: it {error}") from error
    with file:
        yield file


def check_name(name: str) -> str:
    """Return an object's name if it is a relative path of plain parts.

    Raises:
        ValueError: It could lead out of a folder, or not every file system takes it.
    """
    if not is_name(name):
        raise ValueError(f"{printable(name)!r} is no name of an object")
    return name


def is_name(name: str) -> bool:
    """Return whether a name that somebody else chose may be used as a path."""
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and len(part.encode()) <= LONGEST_PART for part in parts)
    return plain and name.isprintable() and len(name.encode()) <= LONGEST_NAME


def open_store(url: str | Path) -> ArtifactStore:
    """Return the store at a URL; S3's region, account and endpoint are those AWS's tools use.

    Args:
        url: `s3://bucket/prefix`, or the path of a folder, which need not exist.

    Raises:
        ConfigError: It is neither, or S3 needs the extra `aws`.
    """
    text = str(url)
    scheme, separator, _ = text.partition("://")
    if separator and scheme != "s3":
        raise ConfigError(
            f"store {printable(text)!r} is neither s3://bucket/prefix nor a folder's path."
        )
    try:
        store: ArtifactStore = _STORES.load("s3" if separator else "folder")(text)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise ConfigError(
            f"{printable(text)} needs boto3. Install it: pip install 'rlzoo_plus[aws]'."
        ) from None
    return store


def in_parallel(act: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what a function that makes requests returns for each item; raise what it raises."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(act, items))


def honours_conditions(store: ArtifactStore, owner: str) -> bool:
    """Return whether a store refuses to create an object twice, as leases need it.

    Some servers that speak S3 ignore the condition of a write. `owner` is a text that no other
    process uses; it names the object that is written.

    Raises:
        StoreError: It could not be tried.
    """
    name = f"live/probes/{owner}"
    store.put(name, b"first")
    return store.put_if_absent(name, b"second") is None

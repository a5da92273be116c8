"""Brings a run from a store: whole, or not at all, with every hash checked."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from itertools import islice
from pathlib import Path

from filelock import FileLock

from rlzoo_plus.artifacts.atomic import MOST_FILES, DamagedFolderError, read_folder
from rlzoo_plus.artifacts.checkpoint import CHUNK_FOLDER, CheckpointStore
from rlzoo_plus.artifacts.untrusted import LARGEST_MANIFEST_BYTES, one_line, parse_json, printable
from rlzoo_plus.store.contract import ArtifactStore, StoreError, in_parallel
from rlzoo_plus.store.mirror import (
    BUNDLES,
    CHECKPOINTS,
    CUT_ROWS,
    HEAD,
    RUNS,
    STATE,
    RunMirror,
    manifest_hash,
)
from rlzoo_plus.store.zips import unzip

LARGEST_FILE_BYTES = 2**36
_STEP = re.compile(r"[0-9]{12,18}")
# A pull that is under way locks this file in its folder.
_HELD, _MADE_S = ".lock", 60.0
log = logging.getLogger(__name__)


def pull_run(store: ArtifactStore, run: str, path: Path, *, state: bool = True) -> int | None:
    """Bring a run from a store; the directory appears when it is whole.

    Every byte of bundles and checkpoints is checked against their hashes; of several checkpoints
    the newest whole one is taken. The directory must not exist. With `state`, what resuming needs
    is brought, too.

    Returns:
        The step that the run can be resumed from, None if there is no checkpoint.

    Raises:
        StoreError: There is no such run, or a request failed.
        DamagedFolderError: A bundle in the store is damaged.
        FileExistsError: The directory exists.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists")
    try:
        with _staging(path) as staging:
            here = staging / path.name
            step = _pull_whole(store, run, here, state=state)
            here.rename(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {one_line(error)}") from error
    return step


@contextmanager
def _staging(path: Path) -> Iterator[Path]:
    """Yield a new folder beside a path, removed in the end; remove those of killed processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}.pull-"
    for left in path.parent.glob(f"{escape(prefix)}*"):
        with suppress(OSError):
            # Who has just made it may not hold it yet.
            if time.time() - left.stat().st_mtime > _MADE_S:
                with FileLock(left / _HELD, timeout=0):
                    shutil.rmtree(left, ignore_errors=True)
    new = tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent)
    with new as name, FileLock(Path(name) / _HELD):
        yield Path(name)


def _pull_whole(store: ArtifactStore, run: str, here: Path, *, state: bool) -> int | None:
    # The checkpoint first: of a run that is being pushed, logs and policies must be as new.
    head, step = b"{}", None
    if state:
        found = store.get(f"{STATE}/{run}/{HEAD}", LARGEST_MANIFEST_BYTES)
        head = b"{}" if found is None else found[0]
        step = _pull_state(store, run, here, head)
    names = _names_of(store, run, shutil.disk_usage(here.parent).free, state=state)
    get_all(store, {name: here / name.removeprefix(f"{RUNS}/{run}/") for name in names})
    for which in BUNDLES:
        zipped = here / f"{which}.zip"
        if zipped.is_file():
            unzip(zipped, here / which)
            read_folder(here / which)
            zipped.unlink()
    mirror = RunMirror(store, run, here)
    if step is not None:
        mirror.note_state(step, head)
    mirror.note_files()
    return step


def _names_of(store: ArtifactStore, run: str, free: int, *, state: bool) -> list[str]:
    """Return the files of a run that can be brought to a disk with so many bytes free."""
    prefix = f"{RUNS}/{run}/"
    entries = list(islice(store.list(prefix), MOST_FILES + 1))
    if not entries:
        raise StoreError(f"{store.url} has no run {printable(run)!r}")
    if len(entries) > MOST_FILES:
        raise StoreError(f"{store.url}/{prefix} has more than {MOST_FILES} files")
    size = sum(entry.size for entry in entries)
    if size > free:
        raise StoreError(f"{store.url}/{prefix} has {size} bytes, and {free} are free here")
    # Of those, a push sends zips and one file, never a folder.
    folders = tuple(f"{prefix}{folder}/" for folder in (CHECKPOINTS, *BUNDLES))
    names = [entry.name for entry in entries]
    with_state = {prefix + CUT_ROWS} if state else set()
    return [name for name in names if not name.startswith(folders) or name in with_state]


def _pull_state(store: ArtifactStore, run: str, here: Path, head: bytes) -> int | None:
    prefix = f"{STATE}/{run}/"
    checkpoints = CheckpointStore(here / CHECKPOINTS)
    for name, manifest in _read_head(head):
        zipped, folder = here / f"{name}.zip", here / CHECKPOINTS / name
        try:
            (here / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            get_all(store, {f"{prefix}{name}.zip": zipped})
            unzip(zipped, folder)
            if manifest_hash(folder) != manifest:
                raise DamagedFolderError(f"{store.url}/{prefix}{name}.zip is not the listed one")
            indices = checkpoints.chunks_at(int(name)).values()
            chunks = here / CHECKPOINTS / CHUNK_FOLDER
            wanted = {n for index in indices for n in index.names if not (chunks / n).exists()}
            get_all(store, {f"{prefix}{CHUNK_FOLDER}/{n}": chunks / n for n in wanted})
            checkpoints.verify(int(name))
        except DamagedFolderError as error:
            log.warning("%s: using the checkpoint before it", error)
            # Its chunks, too: some may be the damaged ones.
            shutil.rmtree(here / CHECKPOINTS)
        else:
            return int(name)
        finally:
            zipped.unlink(missing_ok=True)
    return None


def has_state(store: ArtifactStore, run: str) -> bool:
    """Return whether a store has a list of checkpoints of a run, whole or damaged."""
    return store.get(f"{STATE}/{run}/{HEAD}", LARGEST_MANIFEST_BYTES) is not None


def newest_step(store: ArtifactStore, run: str) -> int | None:
    """Return the step of the newest checkpoint that a store lists for a run, None without any."""
    found = store.get(f"{STATE}/{run}/{HEAD}", LARGEST_MANIFEST_BYTES)
    listed = [] if found is None else _read_head(found[0])
    return int(listed[0][0]) if listed else None


def _read_head(data: bytes) -> list[tuple[str, str]]:
    """Return name and hash of the manifest of each listed checkpoint, newest first."""
    try:
        head = parse_json(data)
        listed = head.get("checkpoints", {}).items()
    except (ValueError, AttributeError):
        return []
    return sorted(((n, m) for n, m in listed if _STEP.fullmatch(n)), reverse=True)[:MOST_FILES]


def get_all(
    store: ArtifactStore, wanted: Mapping[str, Path], largest: int = LARGEST_FILE_BYTES
) -> None:
    """Download objects to new files, several at once.

    `wanted` has the path of each file, where none exists, by the object's name.

    Raises:
        StoreError: A request failed, or a file cannot be written.
        DamagedFolderError: One does not exist, or is where another needs a folder.
    """
    paths = set(wanted.values())
    for name, path in wanted.items():
        if not paths.isdisjoint(path.parents):
            raise DamagedFolderError(f"{store.url}/{name} is below another object")

    def get(item: tuple[str, Path]) -> None:
        name, path = item
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {one_line(error)}") from error
        if not store.get_file(name, path, largest):
            raise DamagedFolderError(f"{store.url}/{name} is missing")

    in_parallel(get, wanted.items())

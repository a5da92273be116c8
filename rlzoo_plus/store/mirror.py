"""Copies a run directory to a store, sending only what changed, and brings it back whole."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from itertools import islice
from pathlib import Path
from threading import Lock

from filelock import FileLock

from rlzoo_plus.artifacts.atomic import (
    MANIFEST,
    MOST_FILES,
    DamagedFolderError,
    read_about,
    read_folder,
    write_json,
)
from rlzoo_plus.artifacts.checkpoint import CHUNK_FOLDER, CheckpointStore
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_json,
    read_plain_file,
)
from rlzoo_plus.store.contract import ArtifactStore, Check, StoreError, is_name
from rlzoo_plus.store.zips import unzip, zip_files

RUNS, STATE = "runs", "state"
# What was sent where; hidden, so it is never sent itself.
SENT_FILE = ".store.json"
CONNECTIONS = 16
LARGEST_FILE_BYTES = 2**36
_CHECKPOINTS = "checkpoints"
_CUT_ROWS = "checkpoints/cut_rows.json"
_BUNDLES = ("best", "final")
# Written last: they say that everything before is there.
_LAST = ("status.json", "result.json")
_OF_TRACKERS = ("wandb", "mlflow")
_HEAD = "checkpoints.json"
_STEP = re.compile(r"[0-9]{12,18}")
# A pull that is under way locks this file in its folder.
_HELD, _MADE_S = ".lock", 60.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent:
    """What a push sent.

    Attributes:
        objects: How many objects.
        size: Their bytes.
        step: Step of the newest checkpoint in the store, None if there is none.
    """

    objects: int
    size: int
    step: int | None


class RunMirror:
    """A run directory and its copy in a store; one process pushes at a time.

    Files are objects of their own below `runs/<run>/`. A folder that is swapped as a whole (a
    checkpoint, `best/`, `final/`) is one uncompressed zip. The chunks of replay buffers keep their
    names; all checkpoints share them.
    """

    def __init__(
        self,
        store: ArtifactStore,
        run: str,
        path: Path,
        check: Check | None = None,
    ) -> None:
        """Name both sides.

        Args:
            store: The store.
            run: The run's name there, such as `sweep/run`.
            path: The run directory.
            check: Called before each request that sends; raises if this process may not send.
        """
        self._store, self._check = store, check
        self._files, self._state = f"{RUNS}/{run}", f"{STATE}/{run}"
        self._path = path
        self._checkpoints = CheckpointStore(path / _CHECKPOINTS)
        self._lock = Lock()
        self._to = f"{store.url}/{self._files}"
        known = read_json(path / SENT_FILE)
        sent = known.get("sent") if known.get("to") == self._to else None
        self._sent: dict[str, str] = dict(sent) if isinstance(sent, dict) else {}

    def push(self) -> Sent:
        """Send what changed since the last push; the store can restore the run at any moment.

        Raises:
            StoreError: A request failed; what was sent before is not sent again.
            OutsideError: A link in the directory leads elsewhere.
        """
        self._count, self._size = 0, 0
        # Read before logs and policies: a checkpoint needs those that are at least as new.
        steps = self._checkpoints.steps()
        wanted = [step for step in steps if step == steps[-1] or self._is_kept(step)]
        marks = {step: _manifest_hash(self._checkpoint(step)[0]) for step in wanted}
        chunks = {step: self._chunks_at(step) for step in wanted}
        # The newest may be pruned while the logs are sent; those that are kept are read one by one.
        newest = self._zip_if_new(*self._checkpoint(steps[-1])) if steps else None
        try:
            self._send_files(file for file in self._plain_files() if file not in _LAST)
            for which in _BUNDLES:
                zipped = self._zip_if_new(self._path / which, f"{self._files}/{which}.zip")
                if zipped is not None:
                    self._send(*zipped)
            self._write_sent()
            for step in wanted:
                is_newest = step == steps[-1]
                zipped = newest if is_newest else self._zip_if_new(*self._checkpoint(step))
                if zipped is not None and zipped[2] == marks[step]:
                    self._send_checkpoint(step, chunks[step], zipped)
            self._send_head(steps, marks)
            self._send_files(_LAST)
            self._forget_old(steps)
        finally:
            self._write_sent()
        in_store = [step for step in wanted if self._checkpoint(step)[1] in self._sent]
        return Sent(self._count, self._size, max(in_store, default=None))

    def is_ahead(self) -> bool:
        """Return whether the directory has all that the store has: nobody else sent anything.

        Raises:
            StoreError: The request failed.
        """
        name = f"{self._state}/{_HEAD}"
        found = self._store.get(name, LARGEST_MANIFEST_BYTES)
        if found is None:
            # Without a checkpoint in the store, a run begins anew, or goes on from what is here.
            return True
        return self._sent.get(name) == hashlib.sha256(found[0]).hexdigest()

    def knows_copy(self) -> bool:
        """Return whether the directory was sent to this place of this store, or came from there."""
        return bool(self._sent)

    def forget_files(self) -> None:
        """Let the next push send logs and policies again: another worker may have replaced them."""
        kept = f"{self._state}/"
        self._sent = {name: mark for name, mark in self._sent.items() if name.startswith(kept)}
        self._write_sent()

    def note_files(self) -> None:
        """Let the next push leave out the logs and policies that came from the store just now."""
        for name in self._plain_files():
            self._sent[f"{self._files}/{name}"] = _file_mark((self._path / name).lstat())
        for which in _BUNDLES:
            if (mark := _manifest_hash(self._path / which)) is not None:
                self._sent[f"{self._files}/{which}.zip"] = mark
        self._write_sent()

    def note_state(self, step: int, head: bytes) -> None:
        """Let the next push leave out a checkpoint that came from the store just now, and is whole.

        Args:
            step: The step of the checkpoint.
            head: The content of the store's list of checkpoints.
        """
        self._sent[f"{self._state}/{_HEAD}"] = hashlib.sha256(head).hexdigest()
        folder, name = self._checkpoint(step)
        self._sent[name] = _manifest_hash(folder) or ""
        for chunk in self._chunks_at(step):
            self._sent[self._chunk(chunk)] = chunk

    def _write_sent(self) -> None:
        """Record what was sent, for the next process."""
        try:
            if self._path.is_dir():
                write_json(self._path / SENT_FILE, {"to": self._to, "sent": self._sent})
        except OSError as error:
            # A full disk, for instance: only what the next process sends depends on it.
            log.warning("%s: what was sent is not recorded: %s", self._path, one_line(error))

    def _forget_old(self, steps: Sequence[int]) -> None:
        """Forget checkpoints and chunks that are gone here, or the record would grow forever."""
        here = {self._chunk(name) for step in steps for name in self._chunks_at(step)}
        here |= {self._checkpoint(step)[1] for step in steps} | {f"{self._state}/{_HEAD}"}
        with self._lock:
            self._sent = {
                name: mark
                for name, mark in self._sent.items()
                if name in here or not name.startswith(f"{self._state}/")
            }

    def _is_kept(self, step: int) -> bool:
        try:
            return read_about(self._checkpoint(step)[0]).get("kept_as") is not None
        except DamagedFolderError:
            return False

    def _send_head(self, steps: Iterable[int], marks: Mapping[int, str | None]) -> None:
        """List the checkpoints of this run: others in the store are of one that it replaced."""
        listed = {}
        for step in steps:
            folder, name = self._checkpoint(step)
            # One that was pruned while it was sent is whole in the store.
            manifest = _manifest_hash(folder) or marks.get(step)
            if manifest is not None and self._sent.get(name) == manifest:
                listed[folder.name] = manifest
        if listed:
            data = json.dumps({"checkpoints": listed}).encode()
            self._send(f"{self._state}/{_HEAD}", data, hashlib.sha256(data).hexdigest())

    def _checkpoint(self, step: int) -> tuple[Path, str]:
        return self._path / _CHECKPOINTS / f"{step:012d}", f"{self._state}/{step:012d}.zip"

    def _zip_if_new(self, folder: Path, name: str) -> tuple[str, bytes, str] | None:
        """Return an object's name, content and mark; None if it was sent, or is not whole."""
        check_inside(self._path, folder)
        mark = _manifest_hash(folder)
        if mark is None or self._sent.get(name) == mark:
            return None
        try:
            files, _ = read_folder(folder)
            manifest = read_plain_file(folder / MANIFEST, LARGEST_MANIFEST_BYTES)
        except (OSError, ValueError, DamagedFolderError):
            # It was pruned or replaced just now: the next push finds a newer one.
            return None
        mark = hashlib.sha256(manifest).hexdigest()
        return name, zip_files({**files, MANIFEST: manifest}), mark

    def _plain_files(self) -> Iterator[str]:
        """Yield the files that are sent as they are, by their path within the run."""
        skipped = {_CHECKPOINTS, *_BUNDLES, *_OF_TRACKERS}
        for folder, folders, files in os.walk(self._path):
            here = Path(folder).relative_to(self._path).as_posix()
            prefix = "" if here == "." else f"{here}/"
            folders[:] = [name for name in folders if prefix or name not in skipped]
            yield from (prefix + name for name in sorted(files) if is_name(prefix + name))
        if (self._path / _CUT_ROWS).is_file():
            yield _CUT_ROWS

    def _send_files(self, names: Iterable[str]) -> None:
        waiting = []
        for name in names:
            try:
                info = (self._path / name).lstat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(info.st_mode):
                continue
            mark = _file_mark(info)
            if self._sent.get(f"{self._files}/{name}") != mark:
                waiting.append((name, mark))
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in pool.map(lambda item: self._send_file(*item), waiting):
                pass

    def _send_file(self, name: str, mark: str) -> None:
        path = self._path / name
        try:
            self._send(f"{self._files}/{name}", path, mark)
        except (StoreError, FileNotFoundError):
            if path.exists():
                raise

    def _send(self, name: str, data: bytes | Path, mark: str) -> None:
        if self._sent.get(name) == mark:
            return
        size = len(data) if isinstance(data, bytes) else data.lstat().st_size
        if self._check is None:
            self._store.put(name, data)
        else:
            self._store.put(name, data, self._check)
        with self._lock:
            self._sent[name] = mark
            self._count, self._size = self._count + 1, self._size + size

    def _send_checkpoint(self, step: int, chunks: set[str], zipped: tuple[str, bytes, str]) -> None:
        """Send the chunks of a checkpoint, and then itself, unless a chunk was pruned just now."""
        new = [name for name in sorted(chunks) if self._chunk(name) not in self._sent]
        try:
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                for _ in pool.map(self._send_chunk, new):
                    pass
        except (StoreError, FileNotFoundError):
            if _manifest_hash(self._checkpoint(step)[0]) == zipped[2]:
                raise
            return
        self._send(*zipped)
        self._write_sent()

    def _send_chunk(self, name: str) -> None:
        path = self._path / _CHECKPOINTS / CHUNK_FOLDER / name
        check_inside(self._path, path)
        self._send(self._chunk(name), path, name)

    def _chunks_at(self, step: int) -> set[str]:
        indices = self._checkpoints.chunks_at(step).values()
        return {name for index in indices for name in index.names}

    def _chunk(self, name: str) -> str:
        return f"{self._state}/{CHUNK_FOLDER}/{name}"


def _file_mark(info: os.stat_result) -> str:
    return f"{info.st_size}-{info.st_mtime_ns}"


def _manifest_hash(folder: Path) -> str | None:
    try:
        manifest = read_plain_file(folder / MANIFEST, LARGEST_MANIFEST_BYTES)
    except (OSError, ValueError):
        return None
    return hashlib.sha256(manifest).hexdigest()


def has_state(store: ArtifactStore, run: str) -> bool:
    """Return whether a store has a checkpoint of a run.

    Raises:
        StoreError: The request failed.
    """
    return store.get(f"{STATE}/{run}/{_HEAD}", LARGEST_MANIFEST_BYTES) is not None


def pull_run(store: ArtifactStore, run: str, path: Path, *, state: bool = True) -> int | None:
    """Bring a run from a store; the directory appears when it is whole.

    Every byte of bundles and checkpoints is checked against their hashes; of several checkpoints
    the newest whole one is taken.

    Args:
        store: The store.
        run: The run's name there.
        path: The run directory, which must not exist.
        state: Bring what resuming needs.

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
        found = store.get(f"{STATE}/{run}/{_HEAD}", LARGEST_MANIFEST_BYTES)
        head = b"{}" if found is None else found[0]
        step = _pull_state(store, run, here, head)
    names = _names_of(store, run, shutil.disk_usage(here.parent).free, state=state)
    get_all(store, {name: here / name.removeprefix(f"{RUNS}/{run}/") for name in names})
    for which in _BUNDLES:
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
    folders = tuple(f"{prefix}{folder}/" for folder in (_CHECKPOINTS, *_BUNDLES))
    names = [entry.name for entry in entries]
    with_state = {prefix + _CUT_ROWS} if state else set()
    return [name for name in names if not name.startswith(folders) or name in with_state]


def _pull_state(store: ArtifactStore, run: str, here: Path, head: bytes) -> int | None:
    prefix = f"{STATE}/{run}/"
    checkpoints = CheckpointStore(here / _CHECKPOINTS)
    for name, manifest in _read_head(head):
        zipped, folder = here / f"{name}.zip", here / _CHECKPOINTS / name
        try:
            (here / _CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            get_all(store, {f"{prefix}{name}.zip": zipped})
            unzip(zipped, folder)
            if _manifest_hash(folder) != manifest:
                raise DamagedFolderError(f"{store.url}/{prefix}{name}.zip is not the listed one")
            indices = checkpoints.chunks_at(int(name)).values()
            chunks = here / _CHECKPOINTS / CHUNK_FOLDER
            wanted = {n for index in indices for n in index.names if not (chunks / n).exists()}
            get_all(store, {f"{prefix}{CHUNK_FOLDER}/{n}": chunks / n for n in wanted})
            checkpoints.load(int(name))
        except DamagedFolderError as error:
            log.warning("%s: using the checkpoint before it", error)
            # Its chunks, too: some may be the damaged ones.
            shutil.rmtree(here / _CHECKPOINTS)
        else:
            return int(name)
        finally:
            zipped.unlink(missing_ok=True)
    return None


def is_sent(path: Path) -> bool:
    """Return whether a push has sent a run's state as it is now, and so all before it.

    Nothing is requested; what was sent is recorded in the run directory.
    """
    sent = read_json(path / SENT_FILE).get("sent")
    marks = list(sent.items()) if isinstance(sent, dict) else []
    ends = [name for name in _LAST if (path / name).is_file()]
    return bool(ends) and all(
        any(name.endswith(f"/{end}") and mark == known for name, mark in marks)
        for end, known in ((end, _file_mark((path / end).lstat())) for end in ends)
    )


def newest_step(store: ArtifactStore, run: str) -> int | None:
    """Return the step of the newest checkpoint that a store lists for a run, None without any.

    Raises:
        StoreError: The request failed.
    """
    found = store.get(f"{STATE}/{run}/{_HEAD}", LARGEST_MANIFEST_BYTES)
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

    Args:
        store: The store.
        wanted: The path of each file by the object's name; no file exists there.
        largest: The most bytes that each may have.

    Raises:
        StoreError: A request failed, or a file cannot be written.
        DamagedFolderError: One does not exist, or is where another needs a folder.
    """
    paths = set(wanted.values())
    for name, path in wanted.items():
        if not paths.isdisjoint(path.parents):
            raise DamagedFolderError(f"{store.url}/{name} is below another object")

    def get(name: str, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {one_line(error)}") from error
        if not store.get_file(name, path, largest):
            raise DamagedFolderError(f"{store.url}/{name} is missing")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(get, wanted.keys(), wanted.values()):
            pass

"""Copies a run directory to a store: only what changed, in an order that is safe to break off."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from rlzoo_plus.artifacts.atomic import (
    MANIFEST,
    PREVIOUS,
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
    read_json,
    read_plain_file,
)
from rlzoo_plus.store.contract import ArtifactStore, Check, StoreError, in_parallel, is_name
from rlzoo_plus.store.zips import zip_files

RUNS, STATE = "runs", "state"
CHECKPOINTS, CUT_ROWS, BUNDLES = "checkpoints", "checkpoints/cut_rows.json", ("best", "final")
# The list of the checkpoints that count, with the hash of each manifest.
HEAD = "checkpoints.json"
# What was sent where; hidden, so it is never sent itself.
SENT_FILE = ".store.json"
# Written last: they say that everything before is there.
_LAST = ("status.json", "result.json")
_OF_TRACKERS = ("wandb", "mlflow")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent:
    """What a push sent."""

    objects: int  # how many objects
    size: int  # their bytes
    step: int | None  # step of the newest checkpoint in the store, None if there is none


class RunMirror:
    """A run directory and its copy in a store; one process pushes at a time.

    Files are objects of their own below `runs/<run>/`. A folder that is swapped as a whole (a
    checkpoint, `best/`, `final/`) is one uncompressed zip. The chunks of replay buffers keep their
    names; all checkpoints share them.
    """

    def __init__(
        self, store: ArtifactStore, run: str, path: Path, check: Check | None = None
    ) -> None:
        """Name both sides.

        `check` is called before each request that sends, and raises if this process may not send.
        """
        self._store, self._check = store, check
        self._files, self._state = f"{RUNS}/{run}", f"{STATE}/{run}"
        self._path = path
        self._checkpoints = CheckpointStore(path / CHECKPOINTS)
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
        marks = {step: manifest_hash(self._checkpoint(step)[0]) for step in wanted}
        chunks = {step: self._chunks_at(step) for step in wanted}
        # The newest may be pruned while the logs are sent; those that are kept are read one by one.
        newest = self._zip_if_new(*self._checkpoint(steps[-1])) if steps else None
        try:
            self._send_files(file for file in self._plain_files() if file not in _LAST)
            for which in BUNDLES:
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
        """Return whether the directory has all that the store has: nobody else sent anything."""
        name = f"{self._state}/{HEAD}"
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
        for which in BUNDLES:
            if (mark := manifest_hash(self._path / which)) is not None:
                self._sent[f"{self._files}/{which}.zip"] = mark
        self._write_sent()

    def note_state(self, step: int, head: bytes) -> None:
        """Let the next push leave out a checkpoint that came from the store just now, and is whole.

        `head` is the content of the store's list of checkpoints.
        """
        self._sent[f"{self._state}/{HEAD}"] = hashlib.sha256(head).hexdigest()
        folder, name = self._checkpoint(step)
        self._sent[name] = manifest_hash(folder) or ""
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
        here |= {self._checkpoint(step)[1] for step in steps} | {f"{self._state}/{HEAD}"}
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
            manifest = manifest_hash(folder) or marks.get(step)
            if manifest is not None and self._sent.get(name) == manifest:
                listed[folder.name] = manifest
        if listed:
            data = json.dumps({"checkpoints": listed}).encode()
            self._send(f"{self._state}/{HEAD}", data, hashlib.sha256(data).hexdigest())

    def _checkpoint(self, step: int) -> tuple[Path, str]:
        return self._path / CHECKPOINTS / f"{step:012d}", f"{self._state}/{step:012d}.zip"

    def _zip_if_new(self, folder: Path, name: str) -> tuple[str, bytes, str] | None:
        """Return an object's name, content and mark; None if it was sent, or is not whole."""
        check_inside(self._path, folder)
        mark = manifest_hash(folder)
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
        # What a bundle is called for a moment while it is replaced is none of the run's files.
        skipped = {CHECKPOINTS, *BUNDLES, *(f"{one}{PREVIOUS}" for one in BUNDLES), *_OF_TRACKERS}
        for folder, folders, files in os.walk(self._path):
            here = Path(folder).relative_to(self._path).as_posix()
            prefix = "" if here == "." else f"{here}/"
            folders[:] = [name for name in folders if prefix or name not in skipped]
            yield from (prefix + name for name in sorted(files) if is_name(prefix + name))
        if (self._path / CUT_ROWS).is_file():
            yield CUT_ROWS

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
        in_parallel(lambda item: self._send_file(*item), waiting)

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
        self._store.put(name, data, self._check)
        with self._lock:
            self._sent[name] = mark
            self._count, self._size = self._count + 1, self._size + size

    def _send_checkpoint(self, step: int, chunks: set[str], zipped: tuple[str, bytes, str]) -> None:
        """Send the chunks of a checkpoint, and then itself, unless a chunk was pruned just now."""
        new = [name for name in sorted(chunks) if self._chunk(name) not in self._sent]
        try:
            in_parallel(self._send_chunk, new)
        except (StoreError, FileNotFoundError):
            if manifest_hash(self._checkpoint(step)[0]) == zipped[2]:
                raise
            return
        self._send(*zipped)
        self._write_sent()

    def _send_chunk(self, name: str) -> None:
        path = self._path / CHECKPOINTS / CHUNK_FOLDER / name
        check_inside(self._path, path)
        self._send(self._chunk(name), path, name)

    def _chunks_at(self, step: int) -> set[str]:
        indices = self._checkpoints.chunks_at(step).values()
        return {name for index in indices for name in index.names}

    def _chunk(self, name: str) -> str:
        return f"{self._state}/{CHUNK_FOLDER}/{name}"


def _file_mark(info: os.stat_result) -> str:
    return f"{info.st_size}-{info.st_mtime_ns}"


def manifest_hash(folder: Path) -> str | None:
    """Return the SHA-256 of the manifest of a bundle or a checkpoint, None without a manifest."""
    try:
        manifest = read_plain_file(folder / MANIFEST, LARGEST_MANIFEST_BYTES)
    except (OSError, ValueError):
        return None
    return hashlib.sha256(manifest).hexdigest()


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

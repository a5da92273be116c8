"""Checkpoints of a run: whole folders named by their step, and the chunks that they share."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rlzoo_plus.artifacts.atomic import (
    PREVIOUS,
    DamagedFolderError,
    read_about,
    read_folder,
    write_folder,
)
from rlzoo_plus.artifacts.chunks import ChunkIndex, ChunkStore, PendingChunks
from rlzoo_plus.artifacts.encryption import Cipher, EncryptionError, decrypted, encrypted
from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.artifacts.untrusted import has_control_characters

SCHEMA_VERSION = 2
READABLE_SCHEMAS = (1, 2)
BEST, MILESTONE = "best", "milestone"
CHUNK_FOLDER = "chunks"
_STEP = re.compile(r"[0-9]{12,18}")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read from its folder."""

    path: Path
    step: int  # environment steps taken
    state: Any  # nested plain data with arrays
    about: Mapping[str, Any]  # of its manifest: schema version, config hash and the like
    schema: int = SCHEMA_VERSION
    chunks: Mapping[str, ChunkIndex] = field(default_factory=dict)  # rows of large arrays, by name
    kept_as: str | None = None  # `best` or `milestone` if it is never pruned

    def read_rows(self, name: str, columns: Mapping[str, NDArray[Any]]) -> None:
        """Fill the rows in use of arrays of the saved shapes; see `ChunkStore.read`.

        Raises:
            KeyError: Nothing was saved under this name.
            DamagedFolderError: A chunk is damaged or does not fit.
        """
        ChunkStore(self.path.parent / CHUNK_FOLDER).read(self.chunks[name], columns)


class CheckpointStore:
    """The checkpoints in one folder; a single process writes, any number read.

    Any thread may save, one at a time.
    """

    def __init__(self, root: Path, keep: int = 3, cipher: Cipher | None = None) -> None:
        """Name the folder, how many checkpoints to keep, and what encrypts new ones."""
        self.root = root
        self.keep = keep
        self.cipher = cipher

    def chunk_store(self) -> ChunkStore:
        """Return the chunks that all these checkpoints share."""
        return ChunkStore(self.root / CHUNK_FOLDER, cipher=self.cipher)

    def save(
        self,
        step: int,
        state: Any,
        about: Mapping[str, Any],
        *,
        chunks: Mapping[str, PendingChunks] | None = None,
        kept_as: str | None = None,
    ) -> Path:
        """Write a checkpoint in one step, then delete those that need not be kept any longer.

        The newest `keep` up to this step stay, and each that was saved with `kept_as`.

        Args:
            step: Environment steps taken so far.
            state: Plain nested data with NumPy arrays.
            about: Further entries of the manifest.
            chunks: Snapshots of large arrays, made by `chunk_store()`, by name.
            kept_as: `best` or `milestone` to never prune it.

        Raises:
            OSError: It cannot be written; all earlier checkpoints are as they were.
        """
        if kept_as not in (None, BEST, MILESTONE):
            raise ValueError(f"kept_as={kept_as!r} must be {BEST!r}, {MILESTONE!r} or None")
        files = packed(state, self.cipher)
        path = self._folder(step)
        try:
            # Chunks first: every checkpoint on the disk must find its rows.
            store = self.chunk_store()
            indices = {name: asdict(store.write(part)) for name, part in (chunks or {}).items()}
            ours = {"schema": SCHEMA_VERSION, "step": step, "kept_as": kept_as, "chunks": indices}
            write_folder(path, files, {**about, **ours})
        finally:
            # After a failure too: a half-written checkpoint must not fill the disk.
            try:
                self._prune(step)
            except OSError as error:
                log.warning("%s: old checkpoints are not deleted now: %s", self.root, error)
        return path

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, oldest first, whole or not."""
        if not self.root.is_dir():
            return []
        names = {p.name.removesuffix(PREVIOUS) for p in self.root.iterdir() if p.is_dir()}
        # As `_folder` writes it: untrusted names may have digits of other scripts, or millions.
        return sorted(int(name) for name in names if _STEP.fullmatch(name))

    def chunks_at(self, step: int) -> Mapping[str, ChunkIndex]:
        """Return where a checkpoint's rows are, for the next snapshot; empty if it is lost."""
        try:
            return _read_indices(self._read_about(step))
        except DamagedFolderError:
            return {}

    def is_whole(self, step: int) -> bool:
        """Return whether a checkpoint can be loaded, where its key is if it is encrypted."""
        try:
            self.verify(step)
        except DamagedFolderError:
            return False
        return True

    def verify(self, step: int) -> None:
        """Check a checkpoint as `load` does; of an encrypted one without its key, the hashes.

        Raises:
            DamagedFolderError: See `load`.
        """
        with contextlib.suppress(EncryptionError):
            self.load(step)

    def load(self, step: int) -> Checkpoint:
        """Read one checkpoint and check its chunks.

        Raises:
            DamagedFolderError: It is incomplete, changed, or of a newer schema.
            EncryptionError: It is encrypted, and the key is not there.
        """
        path = self._folder(step)
        files, about = read_folder(path)
        schema, kept_as = about.get("schema", 0), about.get("kept_as")
        problem = None
        if has_control_characters(about):
            problem = "a text in its manifest has control characters"
        elif schema not in READABLE_SCHEMAS:
            problem = f"schema {schema} is not known here"
        elif about.get("step") != step:
            problem = f"holds step {about.get('step')}"
        elif kept_as not in (None, BEST, MILESTONE):
            problem = f"its kept_as is {kept_as}"
        if problem is not None:
            raise DamagedFolderError(f"{path}: {problem}")
        chunks = _read_indices(about)
        for index in chunks.values():
            self.chunk_store().verify(index)
        try:
            plain = {name: decrypted(data) for name, data in files.items()}
        except EncryptionError:
            # A key that is not there is no damage: an earlier checkpoint would need it, too.
            raise
        except ValueError as error:
            raise DamagedFolderError(f"{path}: {error}") from error
        return Checkpoint(path, step, unpack(plain), about, schema, chunks, kept_as)

    def load_newest(self, before_or_at: int | None = None) -> Checkpoint | None:
        """Read the newest whole checkpoint up to a step; skip damaged ones with a warning."""
        for step in reversed(self.steps()):
            if before_or_at is not None and step > before_or_at:
                continue
            try:
                return self.load(step)
            except DamagedFolderError as error:
                log.warning("%s: using the checkpoint before it", error)
        return None

    def _folder(self, step: int) -> Path:
        return self.root / f"{step:012d}"

    def _prune(self, step: int) -> None:
        """Delete old checkpoints after a save at a step, and the chunks that no other one uses."""
        # Later steps are from before the run was rewound: it will pass them again.
        older = [other for other in self.steps() if other <= step]
        for old in older[: -max(self.keep, 1)]:
            try:
                is_kept = self._read_about(old).get("kept_as") is not None
            except DamagedFolderError:
                is_kept = False
            if not is_kept:
                shutil.rmtree(self._folder(old), ignore_errors=True)
                shutil.rmtree(self.root / f"{old:012d}{PREVIOUS}", ignore_errors=True)
        for leftover in self.root.glob(".*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        live: list[ChunkIndex] = []
        for kept in self.steps():
            try:
                live += _read_indices(self._read_about(kept)).values()
            except DamagedFolderError as error:
                # Its chunks may be all that is left of it: better a full disk.
                log.warning("%s: no chunk is deleted", error)
                return
        self.chunk_store().collect_garbage(live)

    def _read_about(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint's manifest says.

        Raises:
            DamagedFolderError: It is lost.
            OSError: It cannot be read now, but may be later.
        """
        try:
            return read_about(self._folder(step))
        except DamagedFolderError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise cause from None
            raise


def packed(state: Any, cipher: Cipher | None) -> dict[str, bytes]:
    """Return the files of a checkpoint's state, encrypted if there is a cipher.

    Raises:
        TypeError: It holds something other than plain data and numeric arrays.
    """
    return {name: encrypted(data, cipher) for name, data in pack(state).items()}


def _read_indices(about: Mapping[str, Any]) -> dict[str, ChunkIndex]:
    # Schema 1 has none.
    stored = about.get("chunks", {})
    if not isinstance(stored, dict):
        raise DamagedFolderError("a manifest lists chunks that are no chunk indices")
    return {name: ChunkIndex.from_dict(index) for name, index in stored.items()}


class BackgroundWriter:
    """Runs one job at a time in a thread; a job's error is raised by the next `wait`."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[Any] | None = None

    def submit(self, job: Callable[[], Any]) -> None:
        """Wait for the previous job, then start this one."""
        self.wait()
        self._running = self._executor.submit(job)

    def close(self) -> None:
        """End the thread, after the job that runs; `submit` may not be called again."""
        self._executor.shutdown()

    def wait(self) -> None:
        """Return when nothing is being written.

        Raises:
            Exception: Whatever the last job raised.
        """
        if self._running is not None:
            # Not forgotten before it ends: after Ctrl-C here the job still writes.
            error = self._running.exception()
            self._running = None
            if error is not None:
                raise error

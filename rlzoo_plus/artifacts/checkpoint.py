"""Checkpoints of a run: whole folders named by their step, the newest few kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import PREVIOUS, DamagedFolderError, read_folder, write_folder
from rlzoo_plus.artifacts.tree import pack, unpack

SCHEMA_VERSION = 1
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read back.

    Attributes:
        path: Its folder.
        step: Environment steps taken when it was written.
        state: The nested state that was saved.
        about: What its manifest says: schema version, config hash and the like.
    """

    path: Path
    step: int
    state: Any
    about: Mapping[str, Any]


class CheckpointStore:
    """The checkpoints in one folder; a single process writes, any number read."""

    def __init__(self, root: Path, keep: int = 3) -> None:
        self.root = root
        self.keep = keep

    def save(self, step: int, state: Any, about: Mapping[str, Any]) -> Path:
        """Write a checkpoint in one step, then drop those beyond the newest `keep`.

        Args:
            step: Environment steps taken so far.
            state: Plain nested data with NumPy arrays.
            about: Further entries of the manifest.
        """
        path = self.root / f"{step:012d}"
        write_folder(path, pack(state), {"schema": SCHEMA_VERSION, "step": step, **about})
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.root / f"{old:012d}", ignore_errors=True)
            shutil.rmtree(self.root / f"{old:012d}{PREVIOUS}", ignore_errors=True)
        for leftover in self.root.glob(".*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        return path

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, oldest first, whole or not."""
        if not self.root.is_dir():
            return []
        names = {p.name.removesuffix(PREVIOUS) for p in self.root.iterdir() if p.is_dir()}
        return sorted(int(name) for name in names if name.isdigit())

    def load(self, step: int) -> Checkpoint:
        """Read one checkpoint.

        Raises:
            DamagedFolderError: It is incomplete, changed, or of a newer schema.
        """
        path = self.root / f"{step:012d}"
        files, about = read_folder(path)
        if about.get("schema") != SCHEMA_VERSION:
            raise DamagedFolderError(f"{path}: schema {about.get('schema')} is not known here")
        return Checkpoint(path, int(about["step"]), unpack(files), about)

    def load_newest(self) -> Checkpoint | None:
        """Read the newest whole checkpoint, or None; damaged ones are passed over with a word."""
        for step in reversed(self.steps()):
            try:
                return self.load(step)
            except DamagedFolderError as error:
                log.warning("%s: using the checkpoint before it", error)
        return None

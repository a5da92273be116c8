"""The runs that a dashboard shows, found below one folder or in a store, each with a short id."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rlzoo_plus.analysis.index import RunEntry, RunIndex
from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import hash_of
from rlzoo_plus.sweeps.ledger import NAME as LEDGER
from rlzoo_plus.tuning.study_folder import NAME as STUDY

# A page waits for as long while runs are read for the first time [s]; the rest follows.
_FIRST_S, _NEXT_S = 0.25, 1.5
# Between two looks at all runs, and at a store [s].
_LOOK_S, _STORE_S = 2.0, 60.0
_ID_LENGTH = 12


@dataclass
class Source:
    """The runs below a folder; threads may share it."""

    folder: Path
    url: str | None = None  # Of the store that the folder is a light copy of
    renew: Callable[[], object] | None = None  # Brings the light files of the store again
    bring: Callable[[str], Path] | None = None  # Brings a run of the store by its name
    index: RunIndex = field(init=False)
    _entries: dict[str, RunEntry] = field(default_factory=dict)
    _brought: dict[str, RunDir] = field(default_factory=dict)
    _looked_at: float = float("-inf")
    _renewed_at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _bringing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.index = RunIndex([self.folder])

    def runs(self, *, all_of_them: bool = False) -> dict[str, RunEntry]:
        """Return the runs by their id, the newest first; read again if that was a while ago.

        At first those are missing that there was no time to read, unless `all_of_them` are wanted.
        """
        with self._lock:
            now = time.monotonic()
            if self.renew is not None and now - self._renewed_at > _STORE_S:
                self._renewed_at = now
                threading.Thread(target=self._renew, daemon=True).start()
            if self.index.n_left or now - self._looked_at > _LOOK_S:
                budget_s = _NEXT_S if self._entries else _FIRST_S
                found = self.index.refresh(None if all_of_them else budget_s)
                found.sort(key=lambda run: -(run.summary.started_at or 0.0))
                self._entries = {self.id_of(run.summary.path): run for run in found}
                self._looked_at = time.monotonic()
            return self._entries

    def entry(self, run_id: str) -> RunEntry:
        """Return a run by its id; a ConfigError if there is none."""
        known = self._entries.get(run_id) or self.runs().get(run_id)
        if known is None:
            raise ConfigError(f"there is no run {printable(run_id, 40)}.")
        return known

    def directory(self, run_id: str, *, bring: bool = False) -> RunDir:
        """Return where a run's files are; with `bring`, those of a run in a store are brought."""
        entry = self.entry(run_id)
        if self.bring is None:
            return entry.run
        with self._bringing:
            if bring and run_id not in self._brought:
                name = entry.summary.path.relative_to(self.folder).as_posix()
                self._brought[run_id] = RunDir(self.bring(name))
            return self._brought.get(run_id, entry.run)

    def shown(self, path: Path) -> str:
        """Return a path below the folder as text."""
        return printable(path.relative_to(self.folder) if self._is_below(path) else path, 400)

    def address(self, path: Path) -> str:
        """Return what names a run in commands: its path, or its URL in a store."""
        return str(path) if self.url is None else f"{self.url}/{self.shown(path)}"

    def id_of(self, path: Path) -> str:
        """Return a short id, the same at each start."""
        name = path.relative_to(self.folder).as_posix() if self._is_below(path) else str(path)
        return hash_of(name)[:_ID_LENGTH]

    def parent_of(self, run: RunEntry) -> tuple[Path, str]:
        """Return the folder that a run belongs to, and its kind: `sweep`, `study` or `folder`."""
        path = run.summary.path
        for parent in list(path.parents)[:4]:
            if not self._is_below(parent):
                break
            for name, kind in ((STUDY, "study"), (LEDGER, "sweep")):
                if (parent / name).is_file():
                    return parent, kind
        return path.parent, "folder"

    def studies(self) -> dict[str, Path]:
        """Return the folders of studies by id."""
        found: dict[str, Path] = {}
        for pattern in (STUDY, f"*/{STUDY}", f"*/*/{STUDY}"):
            for file in sorted(self.folder.glob(pattern)):
                # As with runs, linked folders are not searched.
                with contextlib.suppress(OutsideError):
                    check_inside(self.folder, file)
                    found[self.id_of(file.parent)] = file.parent
        return found

    def _is_below(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)

    def _renew(self) -> None:
        # Without an answer of the store, the page shows what was there before.
        with contextlib.suppress(ConfigError, OSError):
            assert self.renew is not None
            self.renew()

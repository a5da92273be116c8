"""An index of runs: what tables, plots and comparisons need of each, read again when it changed.

Reading a thousand configurations takes seconds, so what was read is kept in the user's cache. A run
that cannot be read is an entry with its reason.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.run_list import (
    DAMAGED,
    DIED,
    STATES,
    RunSummary,
    find_runs,
    identity,
    summarise,
)
from rlzoo_plus.analysis.series import Evaluation, load_evaluations
from rlzoo_plus.analysis.variants import variant_key, variant_values
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, RUNNING, RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.store.cache import cache_base, hash_of, read_cached

# Raised when what is kept of a run changes.
_VERSION = 2
# Fewer are read as quickly without it.
_FEWEST_KEPT = 20
_FORGET_AFTER_S = 30 * 86400.0


@dataclass(frozen=True)
class RunEntry:
    """A run as tables, plots and comparisons need it."""

    summary: RunSummary
    reason: str = ""  # Why it failed, died or is damaged; empty if it is none of these
    values: dict[str, Any] = field(default_factory=dict)  # See `variant_values`
    variant: str = ""  # See `variant_key`
    solved_return: float | None = None  # Mean return from which on its environment is solved
    evaluations: tuple[Evaluation, ...] = ()  # By rising step

    @property
    def run(self) -> RunDir:
        """The run's directory."""
        return RunDir(self.summary.path)

    @property
    def is_finished(self) -> bool:
        """Whether it took all steps that it was started for."""
        return self.summary.state == FINISHED

    @property
    def algo(self) -> str:
        """The name of its algorithm, safe to print."""
        return printable(self.summary.algo or "unknown", 100)

    @property
    def env(self) -> str:
        """The name of its environment, safe to print."""
        return printable(self.summary.env or self.summary.path.name, 100)


class RunIndex:
    """The runs in some folders; `refresh` reads those that changed since the last time.

    `n_left` is how many of them it had no time to read.
    """

    def __init__(self, folders: Iterable[Path], *, keep: bool = True) -> None:
        """Read what is kept of the folders.

        Folders are runs, or have runs below; with `keep`, what is read is kept in the user's cache.
        """
        self._folders = list(folders)
        name = hash_of("\n".join(os.path.abspath(folder) for folder in self._folders))
        self._file = cache_base() / "index" / f"{name}.json" if keep else None
        stored = {} if self._file is None else read_cached(self._file)
        runs = stored.get("runs") if stored.get("version") == _VERSION else None
        self._stored: dict[str, Any] = runs if isinstance(runs, dict) else {}
        self._entries: dict[str, RunEntry] = {}
        self.n_left = 0

    def refresh(self, budget_s: float | None = None) -> list[RunEntry]:
        """Return the runs there are now, each once, sorted by path below each folder.

        Args:
            budget_s: Leave out runs that were never read once this time [s] is over; the next call
                goes on with them.
        """
        entries, stored, has_changed = [], {}, False
        began, self.n_left = time.monotonic(), 0
        for run in find_runs(self._folders):
            key = os.path.abspath(run.path)
            before = self._stored.get(key)
            if before is None and budget_s is not None and time.monotonic() - began > budget_s:
                self.n_left += 1
                continue
            kept, entry = self._look_at(run, key, before)
            has_changed |= kept is not before
            stored[key] = kept
            self._entries[key] = entry
            entries.append(entry)
        has_changed |= len(stored) != len(self._stored)
        self._stored = stored
        if has_changed and self._file is not None and len(entries) >= _FEWEST_KEPT:
            self._keep()
        return entries

    def _keep(self) -> None:
        assert self._file is not None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            for other in self._file.parent.iterdir():
                # Of folders that nobody has looked into for long, or that are gone.
                if time.time() - other.stat().st_mtime > _FORGET_AFTER_S:
                    other.unlink(missing_ok=True)
            # Without indentation, which would take several times as long.
            write_atomic(self._file, json.dumps({"version": _VERSION, "runs": self._stored}))
        except OSError:
            # Without a cache it is slower.
            self._file = None

    def _look_at(self, run: RunDir, key: str, before: Any) -> tuple[Any, RunEntry]:
        files = (run.config_file, run.evaluations_file, run.result_file, run.status_file)
        stamps = [_stamp(file) for file in files]
        # What was kept may be damaged, too: then once more without it.
        for known in (before, None) if before is not None else (None,):
            try:
                return self._read(run, key, known, stamps)
            except Exception as error:
                # One damaged run must not hide the others.
                reason = f"it cannot be read: {one_line(error)}"
        return None, RunEntry(RunSummary(run.path, DAMAGED), reason)

    def _read(
        self, run: RunDir, key: str, before: Any, stamps: list[list[int]]
    ) -> tuple[Any, RunEntry]:
        kept = before
        if before is not None and before["stamps"] == stamps:
            entry = self._entries.get(key) or _entry(run, before, is_known=True)
            # Its process may have ended, or begun again, without a change of its files.
            if entry.summary.state not in (RUNNING, DIED):
                return before, entry
        else:
            kept = _read(run, stamps, before)
        entry = _entry(run, kept)
        summary = {**asdict(entry.summary), "path": ""}
        if entry.summary.state == RUNNING:
            # It changes by the second.
            summary["wall_time_s"] = None
        if kept.get("summary") != summary:
            kept = {**kept, "summary": summary, "reason": entry.reason}
        return kept, entry


def load_runs(paths: Iterable[Path]) -> list[RunEntry]:
    """Return the runs at or below paths, see `RunIndex.refresh`."""
    return RunIndex(paths).refresh()


def read_run(run: RunDir) -> RunEntry:
    """Return one run, read without the cache; one that cannot be read is damaged."""
    index = RunIndex([run.path], keep=False)
    return next(iter(index.refresh()), RunEntry(RunSummary(run.path, DAMAGED), "it is no run"))


def _stamp(file: Path) -> list[int]:
    try:
        about = os.lstat(file)
    except OSError:
        return []
    return [about.st_mtime_ns, about.st_size, about.st_ino]


def _read(run: RunDir, stamps: list[list[int]], before: Any) -> dict[str, Any]:
    """Return what is kept of a run; the parts whose files are the same are not read again."""
    kept: dict[str, Any] = {"stamps": stamps}
    if before is not None and before["stamps"][0] == stamps[0]:
        kept |= {name: before[name] for name in ("known", "values", "problem")}
    else:
        config, problem = {}, ""
        try:
            config = run.read_config()
        except FileNotFoundError:
            problem = "config.yaml is missing"
        except (OSError, ValueError) as error:
            problem = f"config.yaml cannot be read: {one_line(error)}"
        known = {"known": identity(config), "values": variant_values(config)}
        kept |= {**known, "problem": problem}
    if before is not None and before["stamps"][1] == stamps[1]:
        kept["evaluations"] = before["evaluations"]
    else:
        kept["evaluations"] = [list(vars(each).values()) for each in load_evaluations(run)]
    return kept


def _entry(run: RunDir, kept: dict[str, Any], *, is_known: bool = False) -> RunEntry:
    """Return the entry of what is kept; with `is_known` its summary is that of the last time."""
    evaluations = tuple(Evaluation(*row) for row in kept["evaluations"])
    if is_known:
        summary, reason = RunSummary(**{**kept["summary"], "path": run.path}), kept["reason"]
    else:
        summary = summarise(run, kept["known"], evaluations)
        reason = _reason(run, summary, kept["problem"])
    return RunEntry(
        summary=summary,
        reason=reason,
        values=kept["values"],
        variant=variant_key(kept["values"]),
        solved_return=kept["known"]["solved_return"],
        evaluations=evaluations,
    )


def _reason(run: RunDir, summary: RunSummary, problem: str) -> str:
    if summary.state == DAMAGED:
        if not problem and run.read_status().get("state") not in STATES:
            problem = "status.json is missing or cannot be read"
        return problem or "its configuration names no algorithm or environment"
    if summary.state == DIED:
        return "its process ended without a word"
    if summary.state == FAILED:
        status = run.read_status()
        return printable(status.get("message") or status.get("reason") or "no reason recorded")
    return ""

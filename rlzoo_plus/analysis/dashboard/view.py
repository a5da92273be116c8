"""What the dashboard shows, as plain tables: no page is needed to compute it."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.index import RunEntry, RunIndex
from rlzoo_plus.analysis.progress import read_progress
from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.analysis.series import load_series, metric_keys
from rlzoo_plus.analysis.variants import differing_keys, settings_labels
from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RUNNING
from rlzoo_plus.artifacts.untrusted import printable

# A page waits for as long while runs are read [s]; the rest follows, in parts of `READ_ON_S`.
_FIRST_S = 0.25
READ_ON_S = 1.5
# Between two looks at all runs [s].
_LOOK_S = 2.0
# Of the palette.
_COLOURS = 20
_MOST_VIDEO_BYTES = 2**28


@dataclass
class Runs:
    """The index of one folder, for all pages that show it."""

    index: RunIndex
    _entries: list[RunEntry] = field(default_factory=list)
    _looked_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, budget_s: float = _FIRST_S) -> list[RunEntry]:
        """Return the runs, the newest first; they are read again if that was a while ago."""
        with self._lock:
            if self.index.n_left or time.monotonic() - self._looked_at > _LOOK_S:
                self._entries = self.index.refresh(budget_s)
                self._looked_at = time.monotonic()
            return sorted(self._entries, key=lambda run: -(run.summary.started_at or 0.0))


@functools.cache
def shared_runs(folder: Path) -> Runs:
    """Return the runs in a folder, the same for all pages of this process."""
    return Runs(RunIndex([folder]))


def filtered(
    runs: Iterable[RunEntry], chosen: Mapping[str, Sequence[str]], text: str = ""
) -> list[RunEntry]:
    """Return the runs that match.

    Args:
        runs: All of them.
        chosen: Allowed values of `state`, `algo` and `env`; an empty list allows all.
        text: What the path, a setting or the reason of a failure must hold; `key=value` finds runs
            with this setting.
    """
    key, is_setting, value = text.partition("=")
    found = []
    for run in runs:
        about = run.summary
        if any(values and str(getattr(about, k)) not in values for k, values in chosen.items()):
            continue
        if is_setting:
            if str(run.values.get(key.strip())) != value.strip():
                continue
        elif text and text.lower() not in f"{about.path} {run.reason}".lower():
            continue
        found.append(run)
    return found


def table(runs: Sequence[RunEntry], folder: Path) -> dict[str, list[Any]]:
    """Return the columns of the table of runs, each with a value for each run."""
    rows = [run.summary for run in runs]
    return {
        "run": [_shown(run.path, folder) for run in rows],
        "state": [run.state for run in rows],
        "algo": [printable(run.algo or "-") for run in rows],
        "env": [printable(run.env or "-") for run in rows],
        "seed": [run.seed for run in rows],
        "steps": [run.steps for run in rows],
        "of": [run.n_timesteps and max(run.n_timesteps, run.steps or 0) for run in rows],
        "best": [run.best for run in rows],
        "final": [run.final for run in rows],
        "time": ["-" if run.wall_time_s is None else duration(run.wall_time_s) for run in rows],
        "reason": [printable(run.reason) for run in runs],
    }


def running(runs: Iterable[RunEntry]) -> list[tuple[str, float, str]]:
    """Return name, share of steps taken, and a text with rate and time left of runs that train."""
    found = []
    for run in runs:
        if run.summary.state != RUNNING:
            continue
        progress = read_progress(run.run)
        total = max(run.summary.n_timesteps or 0, progress.steps)
        done = progress.steps / total if total else 0.0
        parts = [f"{progress.steps:,} of {total:,} steps" if total else f"{progress.steps:,} steps"]
        if progress.rate:
            parts.append(f"{progress.rate:,.0f} steps/s")
            left = progress.left_s(total) if total else None
            parts += [] if left is None else [f"{duration(left)} left"]
        if progress.mean_return is not None:
            parts.append(f"mean return {progress.mean_return:.1f}")
        found.append((str(run.summary.path), done, ", ".join(parts)))
    return found


def labels(runs: Sequence[RunEntry], folder: Path) -> list[str]:
    """Return a label for each run, by which their curves are told apart."""
    settings, named = settings_labels({run.variant: run.values for run in runs}), []
    for run in runs:
        about, path = run.summary, _shown(run.summary.path, folder)
        variant = f"{about.algo} {settings[run.variant]}".rstrip()
        named.append(printable(f"{variant} on {about.env}, seed {about.seed} ({path})", 240))
    return named


def metrics_of(runs: Iterable[RunEntry]) -> list[str]:
    """Return the metrics that runs have, `mean_return` first."""
    keys = {key for run in runs for key in metric_keys(run.run)}
    return sorted(keys, key=lambda key: (key != "mean_return", key))


def curve_rows(runs: Sequence[RunEntry], metric: str, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each value of a metric: `run`, `step`, `value`, and `dash`.

    Runs that would have the same colour differ in `dash`.
    """
    rows: list[dict[str, Any]] = []
    for number, (label, run) in enumerate(zip(labels(runs, folder), runs, strict=True)):
        series = load_series(run.run, metric)
        same = {"run": label, "dash": str(number // _COLOURS)}
        pairs = zip(series.steps.astype(int).tolist(), series.values.tolist(), strict=True)
        rows += [{**same, "step": step, "value": value} for step, value in pairs]
    return rows


def settings(runs: Sequence[RunEntry], folder: Path) -> dict[str, list[str]]:
    """Return the settings of one run, or those in which several differ, as columns."""
    values = [run.values for run in runs]
    keys = differing_keys(values) if len(runs) > 1 else sorted(values[0])
    columns = {"setting": keys}
    for label, known in zip(labels(runs, folder), values, strict=True):
        columns[label] = [printable(str(known.get(key, "-")), 200) for key in keys]
    return columns


def videos(run: RunEntry) -> list[Path]:
    """Return the videos of a run, the best policy's first."""
    folder, found = run.run.videos, []
    for path in folder.glob("*.mp4") if folder.is_dir() else ():
        # A link in somebody else's run must not lead out of it.
        with contextlib.suppress(OutsideError):
            check_inside(run.summary.path, path)
            if path.is_file() and path.stat().st_size <= _MOST_VIDEO_BYTES:
                found.append(path)
    return sorted(found, key=lambda path: (path.stem != "best", path.name))


def listens(port: int) -> bool:
    """Return whether a server of this machine listens at a port."""
    with socket.socket() as connection:
        connection.settimeout(0.05)
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _shown(path: Path, folder: Path) -> str:
    return printable(path.relative_to(folder) if path.is_relative_to(folder) else path)

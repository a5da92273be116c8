"""Finds runs below folders, summarises each, however damaged, and lists them as text."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import Evaluation, finite, load_evaluations
from rlzoo_plus.analysis.style import thousands
from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, INTERRUPTED, RUNNING, RunDir
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.errors import ConfigError

DIED, DAMAGED = "died", "damaged"
STATES = (RUNNING, FINISHED, INTERRUPTED, FAILED, DIED, DAMAGED)
# A run whose process cannot be asked counts as running for this long after its last write.
SILENT_S = 3600.0
# Process ids are given out again, after a reboot at the latest.
SILENT_WITH_PROCESS_S = 86400.0
COLUMNS = ("state", "algo", "env", "seed", "steps", "best", "final", "time", "path")
RIGHT = ("seed", "steps", "best", "final", "time")
_LONGEST_NAME = 60


@dataclass(frozen=True)
class RunSummary:
    """A run on one line; None where it is not known."""

    path: Path  # Its directory
    state: str  # One of `STATES`: `died` says it runs but does not, `damaged` cannot be read
    algo: str | None = None  # Name of the algorithm
    env: str | None = None  # Name of the environment, its id where it has no name
    seed: int | None = None  # Seed of the run
    steps: int | None = None  # Environment steps taken so far
    n_timesteps: int | None = None  # Environment steps it was started for
    best: float | None = None  # Highest mean return of an evaluation so far
    final: float | None = None  # Mean return of the last evaluation so far
    wall_time_s: float | None = None  # Time of its processes, until now while it runs [s]
    started_at: float | None = None  # Start, seconds since 1970 [s]


def find_runs(paths: Iterable[Path]) -> list[RunDir]:
    """Return the runs at or below each path, each once, sorted by path below each.

    Hidden folders, linked folders and folders of runs are not searched.
    """
    found: dict[Path, RunDir] = {}
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist. `rlzoo-plus runs` lists the runs there are.")
        for run in _runs_at(path):
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def started_at(run: RunDir) -> float:
    """Return when a run was started [s since 1970], 0 if that is not known."""
    return finite(run.read_status().get("started_at")) or 0.0


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """Return algo, env, seed, n_timesteps and solved_return of a run, None where not known."""
    env, algo = _section(config, "env"), _section(config, "algo")
    env_name, algo_name = env.get("name") or env.get("id"), algo.get("name")
    return {
        "algo": None if algo_name is None else str(algo_name),
        "env": None if env_name is None else str(env_name),
        "seed": _whole(config.get("seed")),
        "n_timesteps": _whole(config.get("n_timesteps")),
        "solved_return": finite(env.get("solved_return")),
    }


def summarise(
    run: RunDir,
    known: dict[str, Any] | None = None,
    evaluations: Sequence[Evaluation] | None = None,
) -> RunSummary:
    """Return what is known of a run; one that cannot be read is `damaged`, never an error.

    `known` and `evaluations` are what `identity` and `load_evaluations` returned, if they were
    called.
    """
    try:
        if known is None:
            config: dict[str, Any] = {}
            with contextlib.suppress(OSError, ValueError):
                config = run.read_config()
            known = identity(config)
        status, result = run.read_status(), run.read_result()
        state = status.get("state")
        if known["algo"] is None or known["env"] is None or state not in STATES:
            state = DAMAGED
        elif state == RUNNING and not _is_alive(run, status):
            state = DIED
        if evaluations is None:
            evaluations = load_evaluations(run)
        returns = [e.mean_return for e in evaluations]
        reached = [_whole(result.get("num_timesteps")), _whole(status.get("num_timesteps"))]
        reached += [evaluations[-1].step] if evaluations else []
        # A run that goes on after its end has the outcome of its first part.
        outcome = {} if state == RUNNING else result
        best, final = (
            finite(_section(outcome, which).get("mean_return")) for which in ("best", "final")
        )
        return RunSummary(
            path=run.path,
            state=str(state),
            algo=known["algo"],
            env=known["env"],
            seed=known["seed"],
            steps=max((steps for steps in reached if steps is not None), default=None),
            n_timesteps=known["n_timesteps"] or _whole(status.get("n_timesteps")),
            best=best if best is not None else max(returns, default=None),
            final=final if final is not None else (returns[-1] if returns else None),
            wall_time_s=_wall_time(run, str(state), status, result),
            started_at=finite(status.get("started_at")),
        )
    except Exception:
        return RunSummary(run.path, DAMAGED)


def _runs_at(path: Path) -> Iterator[RunDir]:
    if RunDir(path).exists():
        yield RunDir(path)
        return
    for folder, children, _ in os.walk(path):
        run = RunDir(Path(folder))
        others = (run.status_file, run.command_file, run.metrics_file, run.evaluations_file)
        # A folder of configuration has a config.yaml, too, but nothing else of a run.
        if run.exists() and any(file.exists() for file in (*others, run.result_file)):
            children.clear()
            yield run
        children[:] = sorted(name for name in children if not name.startswith("."))


def _is_alive(run: RunDir, status: dict[str, Any]) -> bool:
    pid, silence = _whole(status.get("pid")), time.time() - run.last_sign(status)
    machine = run.read_provenance().get("machine")
    if pid is None or pid <= 0 or (machine and machine != machine_fingerprint()):
        return silence < SILENT_S
    if run.lock.path.exists():
        with contextlib.suppress(OSError):
            # The system frees the lock with the process; a process id may be another's by now.
            return run.lock.is_held_elsewhere()
    try:
        os.kill(pid, 0)
    except OSError as error:
        # Not permitted: it lives, and is another user's.
        return error.errno == errno.EPERM and silence < SILENT_WITH_PROCESS_S
    return silence < SILENT_WITH_PROCESS_S


def _wall_time(
    run: RunDir, state: str, status: dict[str, Any], result: dict[str, Any]
) -> float | None:
    measured, started = finite(result.get("wall_time_s")), finite(status.get("started_at"))
    if measured is not None and state != RUNNING:
        return measured
    ended = time.time() if state == RUNNING else run.last_sign(status)
    idle_s = finite(status.get("idle_s")) or 0.0
    return None if started is None else max(0.0, ended - started - idle_s)


def _section(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    number = finite(value)
    return None if number is None else int(number)


def cells(run: RunSummary, url: str | None = None) -> tuple[str, ...]:
    """Return what each of `COLUMNS` shows of a run, safe to print.

    `url` is where it is if its directory is a copy of a run in a store.
    """
    steps = "-" if run.steps is None else thousands(run.steps)
    # Training ends after a whole rollout, which may be above `n_timesteps`.
    most = max(run.n_timesteps or 0, run.steps or 0)
    total = "" if run.n_timesteps is None else f"/{thousands(most)}"
    return (
        run.state,
        printable(run.algo or "-", _LONGEST_NAME),
        printable(run.env or "-", _LONGEST_NAME),
        "-" if run.seed is None else str(run.seed),
        steps + total,
        _number(run.best),
        _number(run.final),
        "-" if run.wall_time_s is None else duration(run.wall_time_s),
        printable(url or os.path.relpath(run.path), LONGEST_LINE),
    )


def aligned(table: Sequence[tuple[str, ...]], right: Collection[str] = RIGHT) -> list[str]:
    """Return the rows, the head first, as lines; columns named in `right` end alike."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = zip(table[0], row, widths, strict=True)
        line = (c.rjust(width) if name in right else c.ljust(width) for name, c, width in cells)
        lines.append("  ".join(line).rstrip())
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2,000 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time with its two largest units: `5s`, `12m03s`, `3h20m`, `2d04h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours_of_day = divmod(hours, 24)
    if hours >= 48:
        return f"{days}d{hours_of_day:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"

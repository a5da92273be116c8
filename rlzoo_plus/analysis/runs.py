"""Finding runs below folders, and telling what became of each, however damaged it is."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.series import finite, load_evaluations
from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, INTERRUPTED, RUNNING, RunDir
from rlzoo_plus.errors import ConfigError

DIED, DAMAGED = "died", "damaged"
STATES = (RUNNING, FINISHED, INTERRUPTED, FAILED, DIED, DAMAGED)
# A run that says it runs, and whose process cannot be asked, is given this long between two writes.
SILENT_S = 3600.0
# Process ids are given out again, after a reboot at the latest.
SILENT_WITH_PROCESS_S = 86400.0


@dataclass(frozen=True)
class RunSummary:
    """A run on one line; None where it is not known.

    Attributes:
        path: Its directory.
        state: One of `STATES`: `died` says it runs but does not, `damaged` cannot be read.
        algo: Name of the algorithm.
        env: Name of the environment, its id where it has no name.
        seed: Seed of the run.
        steps: Environment steps taken so far.
        n_timesteps: Environment steps it was started for.
        best: Highest mean return of an evaluation so far.
        final: Mean return of the last evaluation so far.
        wall_time_s: Time from its start to its end, or to now while it runs [s].
        started_at: Start, seconds since 1970 [s].
    """

    path: Path
    state: str
    algo: str | None = None
    env: str | None = None
    seed: int | None = None
    steps: int | None = None
    n_timesteps: int | None = None
    best: float | None = None
    final: float | None = None
    wall_time_s: float | None = None
    started_at: float | None = None


def find_runs(paths: Iterable[Path]) -> list[RunDir]:
    """Return the runs that are or lie below the paths, each once, sorted by path below each.

    Hidden folders and linked folders are passed over; a run is not searched for further runs.

    Args:
        paths: Runs, or folders with runs at any depth.

    Raises:
        ConfigError: A path does not exist.
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


def identity(run: RunDir) -> dict[str, Any]:
    """Return algo, env, seed, n_timesteps and solved_return of a run, None where not known."""
    try:
        config = run.read_config()
    except (OSError, ValueError):
        config = {}
    env, algo = _section(config, "env"), _section(config, "algo")
    env_name, algo_name = env.get("name") or env.get("id"), algo.get("name")
    return {
        "algo": None if algo_name is None else str(algo_name),
        "env": None if env_name is None else str(env_name),
        "seed": _whole(config.get("seed")),
        "n_timesteps": _whole(config.get("n_timesteps")),
        "solved_return": finite(env.get("solved_return")),
    }


def summarise(run: RunDir) -> RunSummary:
    """Return what is known of a run; one that cannot be read is `damaged`, never an error."""
    try:
        return _summarise(run)
    except Exception:
        return RunSummary(run.path, DAMAGED)


def _summarise(run: RunDir) -> RunSummary:
    known, status, result = identity(run), run.read_status(), run.read_result()
    state = status.get("state")
    if known["algo"] is None or known["env"] is None or state not in STATES:
        state = DAMAGED
    elif state == RUNNING and not _is_alive(run, status):
        state = DIED
    evaluations = load_evaluations(run)
    returns = [e.mean_return for e in evaluations]
    reached = [_whole(result.get("num_timesteps")), _whole(status.get("num_timesteps"))]
    reached += [evaluations[-1].step] if evaluations else []
    # A run that goes on after its end has the outcome of its first part.
    outcome = {} if state == RUNNING else result
    best, final = _mean_return(outcome, "best"), _mean_return(outcome, "final")
    return RunSummary(
        path=run.path,
        state=str(state),
        algo=known["algo"],
        env=known["env"],
        seed=known["seed"],
        steps=max((steps for steps in reached if steps is not None), default=None),
        n_timesteps=_first(known["n_timesteps"], _whole(status.get("n_timesteps"))),
        best=best if best is not None else max(returns, default=None),
        final=final if final is not None else (returns[-1] if returns else None),
        wall_time_s=_wall_time(state == RUNNING, _last_sign(run, status), status, result),
        started_at=finite(status.get("started_at")),
    )


def _runs_at(path: Path) -> Iterator[RunDir]:
    if RunDir(path).exists():
        yield RunDir(path)
        return
    for folder, children, _ in os.walk(path):
        if _looks_like_run(RunDir(Path(folder))):
            children.clear()
            yield RunDir(Path(folder))
        children[:] = sorted(name for name in children if not name.startswith("."))


def _looks_like_run(run: RunDir) -> bool:
    # A folder of configuration has a config.yaml, too, but nothing else of a run.
    others = (run.command_file, run.metrics_file, run.evaluations_file, run.result_file)
    return run.exists() and (run.status_file.exists() or any(file.exists() for file in others))


def _is_alive(run: RunDir, status: dict[str, Any]) -> bool:
    pid, silence = _whole(status.get("pid")), time.time() - _last_sign(run, status)
    if pid is None or pid <= 0 or not _ran_here(run):
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


def _ran_here(run: RunDir) -> bool:
    machine = run.read_provenance().get("machine")
    return bool(not machine or machine == machine_fingerprint())


def _last_sign(run: RunDir, status: dict[str, Any]) -> float:
    """Return when the run last wrote something [s since 1970]."""
    signs = [finite(status.get("updated_at")) or 0.0]
    for file in (run.metrics_file, run.evaluations_file):
        if file.exists():
            signs.append(file.stat().st_mtime)
    return max(signs)


def _wall_time(
    is_running: bool, last_sign: float, status: dict[str, Any], result: dict[str, Any]
) -> float | None:
    measured, started = finite(result.get("wall_time_s")), finite(status.get("started_at"))
    if measured is not None and not is_running:
        return measured
    ended = time.time() if is_running else last_sign
    return None if started is None else max(0.0, ended - started)


def _mean_return(result: dict[str, Any], which: str) -> float | None:
    return finite(_section(result, which).get("mean_return"))


def _section(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    number = finite(value)
    return None if number is None else int(number)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

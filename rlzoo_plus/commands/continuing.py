"""What `train` does with a directory that holds a run already: go on, say it is done, or refuse."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.inside import check_plain
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir, path_problem
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.compare import continued_config
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.resolve import load_stored
from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from rich.console import Console


class BusyError(ConfigError):
    """Another process trains in the directory."""


class Start(StrEnum):
    """How a command begins."""

    NEW = "new"
    RESTART = "restart"
    RESUME = "resume"
    DONE = "done"


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        start: How it begins.
        config: The configuration to train with; a resumed run keeps what its length had decided.
        run_dir: The directory, None if a new one is to be made.
    """

    start: Start
    config: RunConfig
    run_dir: RunDir | None


def plan_run(config: RunConfig) -> Plan:
    """Look at the run directory, and decide; nothing is changed.

    Raises:
        ConfigError: A run is there that must not be touched, or differs.
    """
    if config.run_dir is None:
        if config.restart:
            raise ConfigError("restart=true starts a run anew in run_dir=..., which is not given.")
        return Plan(Start.NEW, config, None)
    run_dir = RunDir(Path(config.run_dir))
    problem = path_problem(run_dir.path)
    if problem is not None:
        raise ConfigError(f"run_dir={config.run_dir[:80]!r}: {problem}. Choose another directory.")
    check_plain(run_dir.path)
    if not run_dir.has_begun():
        return Plan(Start.NEW, config, run_dir)
    if run_dir.lock.is_held_elsewhere():
        raise BusyError(
            f"run_dir={config.run_dir}: another process is training there. "
            "Wait for it, stop it, or choose another directory."
        )
    if config.restart:
        return Plan(Start.RESTART, config, run_dir)
    status = run_dir.read_status()
    state = status.get("state", "unknown")
    if config.resume == "never":
        raise ConfigError(
            f"run_dir={config.run_dir} already holds a run (state: {state}), and resume=never. "
            "Choose another directory, leave run_dir out, or let it go on with resume=auto."
        )
    before = stored_config(run_dir)
    config = continued_config(before, config, str(run_dir.path))
    # The status, not the configuration: that is replaced before a longer training has begun.
    if state == FINISHED and config.n_timesteps <= status.get("n_timesteps", before.n_timesteps):
        return Plan(Start.DONE, config, run_dir)
    _require_a_whole_checkpoint(run_dir)
    return Plan(Start.RESUME, config, run_dir)


def stored_config(run_dir: RunDir) -> RunConfig:
    """Read the configuration that a run was started with.

    Raises:
        ConfigError: It is damaged.
    """
    try:
        return load_stored(run_dir.read_config())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run_dir.config_file} is damaged: {one_line(error)}. restart=true starts anew and "
            "keeps that run aside."
        ) from error


def move_aside(run_dir: RunDir) -> Path:
    """Give a run's directory another name, so that a new run can have its own."""
    stem = f"{run_dir.path.name}-before-{datetime.now():%Y-%m-%d_%H-%M-%S}"
    target = run_dir.path.with_name(stem)
    number = 1
    while target.exists():
        number += 1
        target = run_dir.path.with_name(f"{stem}-{number}")
    os.rename(run_dir.path, target)
    return target


def print_done(console: Console, plan: Plan) -> None:
    """Say that a run is finished, and how it ended."""
    assert plan.run_dir is not None
    from rlzoo_plus.analysis.series import finite
    from rlzoo_plus.artifacts.untrusted import printable

    result = plan.run_dir.read_result()
    record = result.get("best")
    best = finite(record.get("mean_return")) if isinstance(record, dict) else None
    taken = plan.run_dir.read_status().get("num_timesteps", plan.config.n_timesteps)
    steps = finite(result.get("num_timesteps", taken))
    shown = "" if steps is None else f": {steps:,.0f} steps"
    shown += "" if best is None else f", best mean return {best:.1f}"
    reason = printable(str(result.get("reason", "all steps taken")))
    # Only a checkpoint can be gone on from.
    has_more = plan.run_dir.checkpoints().steps()
    longer = "a larger n_timesteps makes it longer, " if has_more else ""
    console.print(
        f"{plan.run_dir.path} is finished ({reason}){shown}. Nothing to do; {longer}restart=true "
        "starts it anew.",
        markup=False,
    )


def _require_a_whole_checkpoint(run_dir: RunDir) -> None:
    """Refuse a run that has come further than its checkpoints: it would start from zero."""
    store = run_dir.checkpoints()
    steps = store.steps()
    if not steps and (taken := _steps_without_checkpoint(run_dir)):
        raise ConfigError(
            f"{run_dir.path} holds a policy of {taken} and no checkpoint to go on from; an "
            "imported policy has none. Evaluate or export it, or train a new run in another "
            "directory. restart=true trains anew here and keeps what is there aside."
        )
    if steps and not any(store.is_whole(step) for step in reversed(steps)):
        raise ConfigError(
            f"{run_dir.path}: none of its {len(steps)} checkpoints is whole. restart=true starts "
            "anew and keeps what is there aside."
        )


def _steps_without_checkpoint(run_dir: RunDir) -> str | None:
    """Return what was trained, None if training from step 0 loses nothing."""
    steps = run_dir.read_status().get("num_timesteps")
    if isinstance(steps, int) and steps > 0:
        return f"{steps} steps"
    # A zip need not say how many there were.
    return "a finished training" if run_dir.final.exists() else None

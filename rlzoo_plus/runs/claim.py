"""Claims a run's directory: checks it, locks it, and records where the run comes from."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import BusyError, Plan, Start

if TYPE_CHECKING:
    from rlzoo_plus.artifacts.run_dir import RunDir, RunLock
    from rlzoo_plus.config.schema import RunConfig


def check_before_building(plan: Plan) -> str | None:
    """Check what can be wrong without torch, so that a mistake is answered at once.

    Returns:
        Why the run could not be resumed bit for bit, None if it could.
    """
    from rlzoo_plus.envs.checks import inspect_env
    from rlzoo_plus.envs.memory import check_memory

    facts = inspect_env(plan.config)
    check_memory(plan.config, facts.observation_space, facts.action_space)
    if plan.config.tracker is not None:
        from rlzoo_plus.tracking import check_tracker

        check_tracker(plan.config.tracker)
    if plan.run_dir is not None:
        try:
            plan.run_dir.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            is_file = plan.run_dir.path.is_file() or isinstance(error, FileExistsError)
            reason = "it is a file" if is_file else error.strerror
            raise ConfigError(
                f"run_dir={plan.config.run_dir} cannot be made: {reason}. Choose another directory."
            ) from error
        if not os.access(plan.run_dir.path, os.W_OK | os.X_OK):
            raise ConfigError(
                f"run_dir={plan.config.run_dir} cannot be written to. Choose another directory, or "
                "change its permissions."
            )
    return facts.replay_problem


def claim_run_dir(plan: Plan, command: str, problem: str | None) -> tuple[RunDir, RunLock]:
    """Lock the directory and write down what is known before the first step.

    Raises:
        BusyError: Another process was faster.
    """
    from rlzoo_plus.artifacts.run_dir import OUTPUTS, new_run_dir

    config = plan.config
    run_dir = plan.run_dir
    if plan.start is Start.RESTART and run_dir is not None:
        with run_dir.lock as old:
            if not old.acquire():
                raise BusyError(f"run_dir={run_dir.path}: another run has just started there.")
            move_aside(run_dir)
        run_dir.path.mkdir(parents=True, exist_ok=True)
    if run_dir is None:
        run_dir = new_run_dir(OUTPUTS, str(config.env.name), config.algo.name, config.seed)
    lock = run_dir.lock
    if not lock.acquire() or (plan.start is not Start.RESUME and run_dir.has_begun()):
        lock.release()
        raise BusyError(f"run_dir={run_dir.path}: another run has just started there.")
    if plan.start is Start.RESUME:
        run_dir.go_on(config.model_dump(), command)
    else:
        run_dir.start(config.model_dump(), command, _provenance(config, problem))
    return run_dir, lock


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


def _provenance(config: RunConfig, problem: str | None) -> dict[str, Any]:
    from rlzoo_plus.artifacts.provenance import collect_provenance
    from rlzoo_plus.config.resolve import config_hash
    from rlzoo_plus.envs.seeding import SeedStreams

    return {
        **collect_provenance(Path(__file__), _user_files(config)),
        "seed_streams": SeedStreams.from_seed(config.seed).report(),
        "config_hash": config_hash(config),
        "exact_resume_problem": problem,
    }


def _user_files(config: RunConfig) -> list[Path]:
    """Return a file of each package of the user's that the run imports."""
    from importlib.util import find_spec

    from rlzoo_plus.config.own_code import own_modules

    files = []
    for name in own_modules(config):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        # A folder without __init__.py has no file.
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        origin = None if spec is None else spec.origin
        files += [Path(place) for place in ([origin] if origin else folders)]
    return [file for file in files if file.exists()]

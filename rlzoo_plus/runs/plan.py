"""What is done with a directory that may hold a run already: begin, resume, nothing, or refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.inside import check_plain
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir, path_problem
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.compare import continued_config
from rlzoo_plus.config.resolve import load_stored
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError


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
    refuse_imported(run_dir)
    _require_a_whole_checkpoint(run_dir)
    return Plan(Start.RESUME, config, run_dir)


def refuse_imported(run_dir: RunDir) -> None:
    """Refuse to go on with a policy that was imported: only its weights are here.

    Raises:
        ConfigError: It was.
    """
    imported = run_dir.read_provenance().get("imported")
    if imported is None:
        return
    name = imported.get("imported_from") if isinstance(imported, dict) else None
    where = f"was imported from {printable(name)}" if name else "was imported"
    raise ConfigError(
        f"{run_dir.path}: its policy {where}, without the optimizer and the state of a training "
        "to go on from. Evaluate or export it, or begin a new run from it elsewhere with "
        f"init_from={run_dir.path}. restart=true trains anew here and keeps what is there aside."
    )


def plan_resume(run_dir: RunDir, before: RunConfig, overrides: Sequence[str] = ()) -> Plan:
    """Plan how a run goes on, with what may change.

    Args:
        run_dir: The run, wherever it is now.
        before: The configuration it was started with.
        overrides: `KEY=VALUE` each.

    Raises:
        ConfigError: An override cannot be read, or changes what may not change; or the run cannot
            go on.
    """
    refuse_imported(run_dir)
    # Whatever the run was started with: here it is to go on.
    data = before.model_dump() | {"resume": "auto", "restart": False}
    return plan_run(with_overrides(data, overrides, str(run_dir.path)))


def with_overrides(data: dict[str, Any], overrides: Sequence[str], path: str | None) -> RunConfig:
    """Return a configuration with values of the user's in the places of its own.

    Args:
        data: The configuration as plain data.
        overrides: `KEY=VALUE` each.
        path: The run's directory.

    Raises:
        ConfigError: An override cannot be read, or its value is wrong.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from rlzoo_plus.config.references import refuse_secrets
    from rlzoo_plus.config.resolve import validate_config

    for override in overrides:
        key, equals, _ = override.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"{override}: must be KEY=VALUE, e.g. n_timesteps=200000.")
    try:
        changes = OmegaConf.from_dotlist(list(overrides))
        refuse_secrets(OmegaConf.to_container(changes, resolve=False))
        merged = OmegaConf.merge(OmegaConf.create(data), changes)
        values = OmegaConf.to_container(merged, resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from error
    assert isinstance(values, dict)
    # Wherever it was when it was started, it is here now.
    return validate_config({str(k): v for k, v in values.items()} | {"run_dir": path})


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

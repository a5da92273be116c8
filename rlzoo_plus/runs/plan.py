"""Decides what to do in a directory that may hold a run: start, resume, nothing, or refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from yaml import YAMLError

from rlzoo_plus.analysis.find_run import stored_config
from rlzoo_plus.analysis.shipped_runs import refuse_to_change
from rlzoo_plus.artifacts.inside import check_plain
from rlzoo_plus.artifacts.run_dir import RunDir, path_problem
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.compare import continued_config
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.engine import engine_version, is_same_engine, trained_engine
from rlzoo_plus.errors import ConfigError

_RESTART = "restart=true trains a new run here and moves this one aside."


class BusyError(ConfigError):
    """Another process trains in the directory."""


class Start(StrEnum):
    """How a run starts."""

    NEW = "new"
    RESTART = "restart"
    RESUME = "resume"
    DONE = "done"


@dataclass(frozen=True)
class Plan:
    """How to train a run."""

    start: Start  # How it starts
    # The configuration to train with; a resumed run keeps what its length had decided
    config: RunConfig
    run_dir: RunDir | None  # The run directory, None to make a new one


def plan_run(config: RunConfig) -> Plan:
    """Plan a run from what its directory holds; nothing is changed.

    Raises:
        ConfigError: It holds a run that must not be changed, or another run.
    """
    if config.run_dir is None:
        if config.restart:
            raise ConfigError("restart=true starts a new run in run_dir=..., which is not given.")
        return Plan(Start.NEW, config, None)
    run_dir = RunDir(Path(config.run_dir))
    problem = path_problem(run_dir.path)
    if problem is not None:
        raise ConfigError(f"run_dir={config.run_dir[:80]!r}: {problem}. Choose another directory.")
    refuse_to_change(run_dir.path)
    check_plain(run_dir.path)
    if not run_dir.has_begun():
        return Plan(Start.NEW, config, run_dir)
    if run_dir.lock.is_held_elsewhere():
        how = "Wait for it, stop it, or choose another directory."
        raise BusyError(f"run_dir={config.run_dir}: another process is training there. {how}")
    if config.restart:
        return Plan(Start.RESTART, config, run_dir)
    status = run_dir.read_status()
    state = status.get("state", "unknown")
    if config.resume == "never":
        raise ConfigError(
            f"run_dir={config.run_dir} already holds a run (state: {state}), and resume=never. "
            "Choose another directory, leave run_dir out, or resume it with resume=auto."
        )
    before = stored_config(run_dir)
    asked = config.env.kwargs.get("engine")
    compared = before
    if before.env.kwargs.get("engine") != asked:
        there = _refuse_other_engine(run_dir, before, config)
        if there is not None and "engine" not in before.env.kwargs:
            compared = _naming_engine(before, asked)
    config = continued_config(compared, config, str(run_dir.path))
    # The status decides: the configuration is replaced before the longer training has begun.
    if run_dir.is_finished(config.n_timesteps, before.n_timesteps):
        return Plan(Start.DONE, config, run_dir)
    _refuse_imported(run_dir)
    _refuse_other_engine(run_dir, before, config)
    _refuse_without_checkpoint(run_dir, status.get("num_timesteps"))
    return Plan(Start.RESUME, config, run_dir)


def _refuse_without_checkpoint(run_dir: RunDir, taken: Any) -> None:
    """Refuse a run that has trained and has no whole checkpoint: it would start from step 0."""
    store = run_dir.checkpoints()
    steps = store.steps()
    has_trained = isinstance(taken, int) and taken > 0
    known = f"{taken} steps" if has_trained else "a finished training"
    # The zip of an imported policy need not say how many steps there were.
    if not steps and (has_trained or run_dir.final.exists()):
        raise ConfigError(
            f"{run_dir.path} holds a policy of {known} and no checkpoint to resume from. Evaluate "
            f"or export it, or train a new run in another directory. {_RESTART}"
        )
    if steps and not any(store.is_whole(step) for step in reversed(steps)):
        found = f"none of its {len(steps)} checkpoints is whole"
        raise ConfigError(f"{run_dir.path}: {found}. {_RESTART}")


def _refuse_imported(run_dir: RunDir) -> None:
    """Refuse to resume a policy that was imported: only its weights are here."""
    imported = run_dir.read_provenance().get("imported")
    if imported is None:
        return
    name = imported.get("imported_from") if isinstance(imported, dict) else None
    where = f"was imported from {printable(name)}" if name else "was imported"
    raise ConfigError(
        f"{run_dir.path}: its policy {where}, without the optimizer: it cannot resume. Start a "
        f"new run from it in another directory with init_from={run_dir.path}. {_RESTART}"
    )


def _naming_engine(config: RunConfig, engine: Any) -> RunConfig:
    """Return a configuration with the engine that its run had and did not name."""
    kwargs = {**config.env.kwargs, "engine": engine}
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def _refuse_other_engine(run_dir: RunDir, before: RunConfig, now: RunConfig) -> str | None:
    """Refuse to go on with another physics engine, asked for or the default of this machine.

    Returns:
        The engine that it was trained with, None if it is no robot.
    """
    asked = before.env.kwargs.get("engine")
    there = trained_engine(run_dir.read_provenance(), before.env.id, asked)
    here = engine_version(now.env)
    if there is not None and here is not None and not is_same_engine(there, here):
        raise ConfigError(
            f"{run_dir.path}: it was trained with the engine {there}, and would go on with {here}, "
            f"which gives other numbers. Resume it with env.kwargs.engine={there.split()[0]}, or "
            f"train a new run in another directory. {_RESTART}"
        )
    return there


def plan_resume(run_dir: RunDir, before: RunConfig, overrides: Sequence[str] = ()) -> Plan:
    """Plan how a run resumes, with what may change.

    Raises:
        ConfigError: An override cannot be read or may not change, or the run cannot resume.
    """
    _refuse_imported(run_dir)
    # Also a run that was started with resume=never or restart=true resumes here.
    data = before.model_dump() | {"resume": "auto", "restart": False}
    return plan_run(with_overrides(data, overrides, str(run_dir.path)))


def with_overrides(data: dict[str, Any], overrides: Sequence[str], path: str | None) -> RunConfig:
    """Return a configuration with some values replaced.

    Args:
        data: The configuration as plain data.
        overrides: `KEY=VALUE` each.
        path: The run directory, which replaces the stored one: the run may have been moved.

    Raises:
        ConfigError: An override cannot be read, or its value is wrong.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        key, equals, _ = override.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"{override}: must be KEY=VALUE, e.g. n_timesteps=200000.")
    try:
        changes = OmegaConf.from_dotlist(list(overrides))
        given: Any = OmegaConf.to_container(changes, resolve=False)
        refuse_secrets(given)
        merged = OmegaConf.merge(OmegaConf.create(data), changes)
        values = OmegaConf.to_container(merged, resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from error
    assert isinstance(values, dict)
    return validate_config({str(k): v for k, v in values.items()} | {"run_dir": path})

"""Opening a run that a user named: its directory, its configuration, one of its policies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.errors import ConfigError

# Gymnasium's bridges to old Gym: their arguments name a module to import.
IMPORTING_IDS = ("GymV21Environment-v0", "GymV26Environment-v0")

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.config.schema import RunConfig


@dataclass(frozen=True)
class OpenedRun:
    """A run with one of its policies, ready to act.

    Attributes:
        run: Its directory.
        config: Its configuration.
        policy: The policy asked for.
        step: Environment steps after which the policy was saved.
    """

    run: RunDir
    config: RunConfig
    policy: Policy
    step: int


def open_run(path: str, which: str = "best", *, trust: bool = False) -> OpenedRun:
    """Open a run and load one of its policies.

    Args:
        path: The run's directory.
        which: `best`, `final` or the step of a checkpoint.
        trust: Import packages and wrappers that this project does not ship.

    Raises:
        ConfigError: There is no such run or policy, it is damaged, or it needs trust.
    """
    run, config = open_config(path, trust=trust)
    from rlzoo_plus.agents.loading import load_run_policy

    policy, about = load_run_policy(run, which, trust=trust)
    _check_stack(config, policy)
    return OpenedRun(run, config, policy, int(about["step"]))


def open_config(
    path: str, *, trust: bool = False, to_train: bool = False
) -> tuple[RunDir, RunConfig]:
    """Open a run and read its configuration; nothing in it is instantiated.

    Args:
        path: The run's directory.
        trust: Import what this project does not ship.
        to_train: The run is to go on: its callbacks and tracker count, too.

    Raises:
        ConfigError: There is no such run, its configuration is damaged, or it needs trust.
    """
    run, path = RunDir(Path(path)), printable(path)
    if not run.path.is_dir():
        raise ConfigError(f"{path}: no such directory. `rlzoo-plus runs` lists the runs there are.")
    # exists() would pass over a link that leads nowhere.
    if not os.path.lexists(run.config_file):
        raise ConfigError(
            f"{path} holds no run: config.yaml is missing. `rlzoo-plus runs {path}` lists the "
            "runs below it."
        )
    config = _read_config(run)
    foreign = foreign_code_of(config) if to_train else _foreign(config)
    if foreign and not trust:
        raise ConfigError(
            f"{path} needs what is not ours: {printable(', '.join(foreign))}. If you know "
            "where the run comes from, add --trust to import it."
        )
    from rlzoo_plus.config.own_code import import_packages

    import_packages(config)
    return run, config


def foreign_code_of(config: RunConfig) -> list[str]:
    """Return what training would import that this project does not ship."""
    return list(dict.fromkeys([*_foreign(config), *_foreign_to_train(config)]))


def _read_config(run: RunDir) -> RunConfig:
    from rlzoo_plus.config.resolve import load_stored

    try:
        config = load_stored(run.read_config())
        return config
    except (ValueError, OSError) as error:
        where, reason = printable(run.config_file), one_line(error)
        raise ConfigError(f"{where} is damaged: {reason}.") from error


def _foreign(config: RunConfig) -> list[str]:
    """Return what evaluating a run would import and we do not ship."""
    from rlzoo_plus.config.own_code import own_code
    from rlzoo_plus.config.references import variables_in

    names = own_code(config, "play")
    names += [f"the variable {name}" for name in variables_in(config.env.model_dump())]
    return [*names, *([config.env.id] if config.env.id in IMPORTING_IDS else [])]


def _foreign_to_train(config: RunConfig) -> list[str]:
    """Return what going on would import besides, or where it would send what it learns."""
    from rlzoo_plus.config.own_code import own_code
    from rlzoo_plus.config.references import variables_in

    names = own_code(config)
    names += [f"the variable {name}" for name in variables_in(config.callbacks)]
    tracker = config.tracker
    return [*names, *([] if tracker is None else [f"tracker {tracker.name}"])]


def _check_stack(config: RunConfig, policy: Policy) -> None:
    """Refuse a stack that the policy's observations cannot hold, before it is allocated."""
    from gymnasium import spaces

    space = policy.network.observation_space
    parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    longest = max((max(part.shape or (1,), default=1) for part in parts), default=1)
    if config.env.frame_stack > longest:
        raise ConfigError(
            f"env.frame_stack={config.env.frame_stack} is not what the policy was trained with: "
            f"its observations have {longest} at most."
        )


def one_torch_thread() -> None:
    """Use one thread: acting alone is fastest with it."""
    import torch

    torch.set_num_threads(1)

"""The policies of a run: its best, its last, or that of any checkpoint."""

from __future__ import annotations

import re

from rlzoo_plus.agents.policy import Policy, policy_from_bundle
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import Bundle, check_step, load_bundle
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import LARGEST_YAML_BYTES, one_line, parse_yaml, read_plain_file
from rlzoo_plus.errors import ConfigError


def load_run_policy(run: RunDir, which: str = "best", *, trust: bool = False) -> Policy:
    """Load a policy of a run.

    Args:
        run: The run.
        which: `best`, `final` or the step of a checkpoint.
        trust: Import what this project does not ship.

    Raises:
        ConfigError: The run has no such policy, or it is damaged.
    """
    return policy_from_bundle(load_run_bundle(run, which), trust=trust)


def load_run_bundle(run: RunDir, which: str = "best", key: str = "--which ") -> Bundle:
    """Read a policy of a run as data; see `load_run_policy`.

    Args:
        run: The run.
        which: `best`, `final` or the step of a checkpoint.
        key: What the user has set it by, for the message.
    """
    is_step = re.fullmatch(r"[0-9]{1,15}", which) is not None
    if which not in ("best", "final") and not is_step:
        raise ConfigError(
            f"{key}{which}: must be best, final or the step of a checkpoint. {_available(run)}"
        )
    try:
        return _checkpoint_bundle(run, int(which)) if is_step else _bundle(run, which)
    except (DamagedFolderError, KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{which} is damaged: {one_line(error)}. {_available(run)}") from error


def _bundle(run: RunDir, which: str) -> Bundle:
    path = run.best if which == "best" else run.final
    if not path.is_dir() and not path.with_name(path.name + ".previous").is_dir():
        raise ConfigError(f"{run.path} has no {which} policy yet. {_available(run)}")
    return load_bundle(path)


def _checkpoint_bundle(run: RunDir, step: int) -> Bundle:
    if step not in _steps(run):
        raise ConfigError(f"{run.path} has no checkpoint at step {step}. {_available(run)}")
    checkpoint = run.checkpoints().load(step)
    return Bundle(
        config=parse_yaml(read_plain_file(run.config_file, LARGEST_YAML_BYTES)),
        spaces=checkpoint.state["spaces"],
        weights=checkpoint.state["agent"]["parameters"]["policy"],
        normalization=checkpoint.state["normalizer"],
        about={"step": check_step(checkpoint.step)},
    )


def _available(run: RunDir) -> str:
    names = [path.name for path in (run.best, run.final) if path.is_dir()]
    names += [str(step) for step in _steps(run)]
    return f"It has: {', '.join(names)}." if names else "It has saved nothing yet."


def _steps(run: RunDir) -> list[int]:
    try:
        return run.checkpoints().steps()
    except (OSError, ValueError):
        # Folders of a stranger can have any name.
        return []

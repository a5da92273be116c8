"""The job of a member, in a process of its own: its run until it is compared with the others."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.find_run import stored_config
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.resolve import config_hash, validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.train_job import run_job
from rlzoo_plus.timetravel.branch_rules import changes_of
from rlzoo_plus.timetravel.branching import plan_branch
from rlzoo_plus.tuning.override_values import value_text

JOB = "rlzoo_plus.populations.member_job:run_member"
PRELOAD = ("rlzoo_plus.runs.preload", "rlzoo_plus.populations.member_job")


def run_member(data: dict[str, Any]) -> int:
    """Train a part of a member's training; return the exit code, 74 where it waits for others.

    Args:
        data: `config` and `command`, as of any job; `until`, the step after which an evaluation
            ends the part; of a branch `parent`, a run's directory and its configuration as
            `parent_config`, and `parent_step`.
    """
    until, total = data["until"], data["config"]["n_timesteps"]

    def watch(record: Mapping[str, Any], stop: Any) -> None:
        if until <= record["step"] < total:
            stop.reason = "compared with the other members"

    if data.get("parent") is not None:
        begin_branch(data)
    return run_job({"config": data["config"], "command": data["command"]}, watch=watch)


def begin_branch(data: Mapping[str, Any]) -> None:
    """Copy the checkpoint that a member goes on from, unless that is done.

    Raises:
        ConfigError: The parent is not the run that it should be, or cannot be branched from.
    """
    config = validate_config(data["config"])
    run_dir = RunDir(Path(str(config.run_dir)))
    if run_dir.checkpoints().steps():
        return
    # A kill came before the checkpoint was there.
    shutil.rmtree(run_dir.path, ignore_errors=True)
    parent, wanted = RunDir(Path(data["parent"])), validate_config(data["parent_config"])
    stored = stored_config(parent)
    if config_hash(stored) != config_hash(wanted) or own_code(stored) != own_code(wanted):
        raise ConfigError(f"{parent.path} is not the run that this population has trained there.")
    name = f"{parent.path}@{data['parent_step']}"
    # What it names is what the user's own command names.
    branch = plan_branch(name, changes(wanted, config), trust=True)
    if config_hash(branch.config) != config_hash(config):
        raise ConfigError(f"{name}: the branch would not be {run_dir.path}.")
    branch.begin(data["command"])


def changes(before: RunConfig, now: RunConfig) -> list[str]:
    """Return what a branch changes, as overrides."""
    found = changes_of(before, now).items()
    return [*(f"{key}={value_text(new)}" for key, (_, new) in found), f"run_dir={now.run_dir}"]

"""The file of a study's winner: where it lies, whose it is, and how it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.tuning.plan import StudyPlan

# Below the study.
CONF = "conf"


def write_winner(
    plan: StudyPlan, number: int, config: RunConfig, arguments: list[str]
) -> tuple[Path, str]:
    """Write the winner's file; return it, and the option with which it is found.

    Args:
        plan: The study.
        number: The winner's number.
        config: The configuration of a run of the winner.
        arguments: The command line, as typed.

    Raises:
        ConfigError: The file cannot be written; the text says why.
    """
    from rlzoo_plus.tuning.experiment_file import write_experiment

    target, option = _target(plan, arguments)
    header = [
        f"{_first_words(plan)} trial {number}.",
        f"Use: rlzoo-plus train {option}experiment={target.stem}",
        f"Written by a study; the next one of the same name replaces it. See {plan.folder}.",
    ]
    write_experiment(target, config, header, overwrite=_is_ours(target, plan))
    return target, option


def winner_options(study: Path, experiment: str) -> list[str]:
    """Return the option that finds a winner below its study, none if it is elsewhere."""
    file = study / CONF / "experiment" / f"{experiment}.yaml"
    return ["--config-dir", str(study / CONF)] if file.is_file() else []


def check_target(plan: StudyPlan, arguments: list[str]) -> None:
    """See that the winner's file would replace none of the user's.

    Raises:
        ConfigError: It would.
    """
    target, _ = _target(plan, arguments)
    if target.exists() and not _is_ours(target, plan):
        raise ConfigError(
            f"{target} exists, and this study did not write it. "
            "Choose another name for the winner: hpo.experiment=NAME."
        )


def _target(plan: StudyPlan, arguments: list[str]) -> tuple[Path, str]:
    """Return where the winner's file lies, and the option with which it is found."""
    from rlzoo_plus.tuning.experiment_file import experiment_name

    name = plan.hpo.experiment or f"{experiment_name(plan.name)}_best"
    root, option = _conf_root(plan, arguments)
    return root / "experiment" / f"{name}.yaml", option


def _first_words(plan: StudyPlan) -> str:
    return f"The winner of the study {plan.name}:"


def _is_ours(target: Path, plan: StudyPlan) -> bool:
    """Tell whether a file was written by this study, and not by the user."""
    try:
        with target.open(encoding="utf-8") as file:
            head = file.read(2048)
    except (OSError, UnicodeDecodeError):
        return False
    # A long name is wrapped, at spaces and hyphens.
    wanted, found = (re.sub(r"[\s#]+", "", text) for text in (_first_words(plan), head))
    return f"{wanted}trial" in found


def _conf_root(plan: StudyPlan, arguments: list[str]) -> tuple[Path, str]:
    """Return the folder of configuration files for the winner, and the option that names it.

    It is the user's own, beside whose files the winner may need to lie, or one below the study.
    """
    from rlzoo_plus.config.compose import config_dirs

    *own, _ = config_dirs(arguments)
    root = own[0] if own else plan.folder / CONF
    return root, f"--config-dir {shlex.quote(str(root))} "

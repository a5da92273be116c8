"""Opening a run that a user named: its directory, its configuration, one of its policies."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.errors import ConfigError

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

    policy, about = load_run_policy(run, which)
    return OpenedRun(run, config, policy, int(about["step"]))


def open_config(path: str, *, trust: bool = False) -> tuple[RunDir, RunConfig]:
    """Open a run and read its configuration; nothing in it is instantiated.

    Raises:
        ConfigError: There is no such run, its configuration is damaged, or it needs trust.
    """
    import yaml

    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.envs.single import foreign_code

    run = RunDir(Path(path))
    if not run.path.is_dir():
        raise ConfigError(f"{path}: no such directory. `rlzoo-plus runs` lists the runs there are.")
    if not run.config_file.is_file():
        raise ConfigError(
            f"{path} holds no run: config.yaml is missing. `rlzoo-plus runs {path}` lists the "
            "runs below it."
        )
    try:
        config = RunConfig.model_validate(run.read_config())
    except (ValueError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{run.config_file} is damaged: {reason}.") from error
    foreign = [*foreign_code(config.env), *config.algo.packages]
    if foreign and not trust:
        raise ConfigError(
            f"{path} needs code that is not ours: {', '.join(foreign)}. If you know where the "
            "run comes from, add --trust to import it."
        )
    if config.algo.packages:
        from rlzoo_plus.config.catalog import import_algorithm_packages

        import_algorithm_packages(config.algo.packages)
    return run, config


def run_parser(verb: str, description: str, example: str) -> ArgumentParser:
    """Return a parser with the arguments that all commands on a run share."""
    parser = ArgumentParser(
        prog=f"rlzoo-plus {verb}", description=f"{description} Example: {example}"
    )
    parser.add_argument("run", metavar="RUN", help="a run directory, e.g. outputs/<env>/<algo>/...")
    parser.add_argument(
        "--which", default="best", help="best (default), final, or the step of a checkpoint"
    )
    parser.add_argument(
        "--seed", type=_not_negative, default=0, help="another set of held-out episodes"
    )
    parser.add_argument("--stochastic", action="store_true", help="act with exploration")
    parser.add_argument(
        "--trust", action="store_true", help="import the run's own packages and wrappers"
    )
    return parser


def positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return an argparse type that accepts numbers above zero only."""

    def parse(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse.__name__ = "number above 0"
    return parse


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


_not_negative.__name__ = "whole number of at least 0"


def one_torch_thread() -> None:
    """Use one thread: acting alone is fastest with it."""
    import torch

    torch.set_num_threads(1)


def note(text: str) -> None:
    """Print a remark where it does not disturb the output that others read."""
    print(text, file=sys.stderr)

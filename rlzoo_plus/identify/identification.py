"""The identification of a robot: a log is read, fitted, written and plotted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.fitting import Fit, fit
from rlzoo_plus.identify.identified import data, plot, table, write
from rlzoo_plus.identify.logs import Log, log_of_episodes, read_csv
from rlzoo_plus.identify.parameters import read_known
from rlzoo_plus.identify.worlds import Worlds
from rlzoo_plus.policies.episode import episode_files, load_episode
from rlzoo_plus.runs.run import Run
from robots.env import BaseRobotEnv

__all__ = ["data", "identify", "table"]

RunOf = Callable[[Path, dict[str, Any]], Run]


def identify(
    path: Path,
    spec: EnvConfig,
    known: Sequence[str] = (),
    *,
    out: Path,
    command: Sequence[str],
    run_of: RunOf,
) -> tuple[Fit, list[str]]:
    """Identify a robot, and write the configuration and the plot beside it.

    Args:
        path: A CSV, or saved episodes.
        spec: The robot's environment.
        known: What is not fitted, as NAME=VALUE.
        out: The configuration to write, a .yaml.
        command: What was typed, for its first lines.
        run_of: Returns the run that played a saved episode.

    Returns:
        What was found, and what was left out of the log.

    Raises:
        ConfigError: The log is not valid, too short, or of another robot.
    """
    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out {printable(out)}: end it in .yaml.")
    with Worlds(spec) as worlds:
        fixed = read_known(known, worlds.parameters)
        log = read_log(path, worlds.env, run_of)
        found = fit(worlds, log, fixed)
        joints = [joint.name for joint in worlds.env.robot.joints]
        step_s = worlds.env.simulation.step_s
    write(found, out, command)
    plot(found, joints, step_s, out.with_suffix(".png"))
    return found, log.notes


def read_log(path: Path, env: BaseRobotEnv, run_of: RunOf) -> Log:
    """Read a log of a robot: a CSV, or saved episodes.

    Raises:
        ConfigError: It is not valid, or of another robot.
    """
    if not path.is_dir() and path.suffix not in (".npz", ".json"):
        return read_csv(path, env)
    stretches, are_targets = [], False
    for file in episode_files(path):
        episode, about = load_episode(file)
        run = run_of(file, about)
        run.require_trust()
        spec = run.changed_config(about["overrides"])[0].env
        played, are_targets = log_of_episodes(spec, [episode], env)
        stretches += played
    return Log(stretches, are_targets)

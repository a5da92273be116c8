"""Collects demonstrations: plays a policy, or reads what was played: saved episodes, a robot's log.

A session of `run-robot` logs what the policy saw before each step, so the last step of each episode
is left out: what it led to is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration, Rows
from rlzoo_plus.demonstrations.minari_format import write_dataset
from rlzoo_plus.drivers.log_table import read_numbers
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.entries import joined, stacked
from rlzoo_plus.policies.episode import Episode, episode_files, load_episode
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.policies.replay import PlayedStep, replay
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import one_torch_thread
from rlzoo_plus.training.media import steps_per_second

LOG, SESSION, LEROBOT = "log.csv", "session.json", "meta/info.json"
# Beside those of evaluations, which begin elsewhere.
_SEEDS_BELOW, _STREAM = 2**29, 40_000
# The action that the policy chose, as a session names it: of a drive that takes targets, or not.
_ACTIONS = ("policy/", "action/")
# Opens the run that played a saved episode, from its file and what it says.
RunOf = Callable[[Path, dict[str, Any]], Run]


def collect(
    name: str,
    out: Path,
    *,
    play: Callable[[], dict[str, Any]],
    open_run: Callable[[str], Run],
    run_of: RunOf,
    acted: str | None,
    lerobot: bool = False,
) -> str:
    """Write a dataset of what a name means: a session, saved episodes, LeRobot's, or else a run.

    Args:
        name: As it was typed.
        out: A new folder.
        play: Returns the arguments of `played` for a run.
        open_run: Opens a run by its name.
        run_of: Opens the run that played a saved episode.
        acted: Name of the run whose policy acted, where a log does not say.
        lerobot: Whether to write LeRobot's format instead of Minari's.

    Returns:
        A summary.
    """
    path = Path(name)
    if (path / SESSION).is_file():
        dataset = from_session(path, open_run, acted)
    elif path.suffix in (".json", ".npz") or (path.is_dir() and any(path.glob("episode-*.json"))):
        dataset = from_episodes(path, run_of)
    elif (path / LEROBOT).is_file():
        dataset = from_lerobot(path, open_run, acted)
    else:
        dataset = played(**play())
    writer_of(lerobot=lerobot)(out, dataset)
    return summary_of(dataset)


def writer_of(*, lerobot: bool) -> Callable[[Path, Dataset], None]:
    """Return what writes a dataset, in LeRobot's format or in Minari's."""
    write: Callable[[Path, Dataset], None]
    write = _lerobot_format().write_lerobot if lerobot else write_dataset
    return write


def summary_of(dataset: Dataset) -> str:
    """Return how many episodes and steps a dataset has, and their mean return."""
    mean = sum(one.episode_return for one in dataset.episodes) / len(dataset.episodes)
    episodes = counted(len(dataset.episodes), "episode")
    return f"{episodes}, {dataset.n_steps:,} steps, mean return {mean:.2f}"


def seeds_of(count: int, seed: int) -> list[int]:
    """Return seeds of episodes that no evaluation plays."""
    drawn = np.random.default_rng([_STREAM, seed]).integers(0, _SEEDS_BELOW, size=count)
    return [int(number) for number in drawn]


def played(run: Run, which: str, episodes: int, seed: int, *, deterministic: bool) -> Dataset:
    """Return episodes of a policy in its own environment."""
    run.require_trust()
    seeds, policy = seeds_of(episodes, seed), run.policy(which)
    recorded, _ = record_episodes(run, policy, seeds, deterministic=deterministic)
    with closing(run.env(1)) as venv:
        task = (venv.observation_space, venv.action_space), steps_per_second(venv)
    how = "deterministic" if deterministic else "stochastic"
    told = f"{counted(len(recorded), 'episode')} of the policy {which} at step {policy.step}, {how}"
    found = [_of_episode(one, one.observations or []) for one in recorded]
    return Dataset(*task[0], found, about(run.config, told), task[1])


def from_episodes(path: Path, run_of: RunOf) -> Dataset:
    """Return saved episodes, played again for what was seen.

    Raises:
        ConfigError: One comes out otherwise here.
    """
    found, config, seen, rate_hz = [], None, None, None
    for file in episode_files(path):
        episode, facts = load_episode(file)
        run = run_of(file, facts)
        config, _ = run.changed_config(facts["overrides"])
        rows: list[Any] = []

        def keep(step: PlayedStep, rows: list[Any] = rows) -> None:
            rows.append(step.observation)

        with one_torch_thread(), closing(run.env(1, config=config)) as venv:
            difference = replay(episode, venv, keep)
            seen, rate_hz = (venv.observation_space, venv.action_space), steps_per_second(venv)
        if difference is not None:
            raise ConfigError(
                f"{printable(file)} comes out otherwise here: {difference}. Collect episodes of "
                "the policy itself: rlzoo-plus collect RUN."
            )
        found.append(_of_episode(episode, rows))
    assert seen is not None
    assert config is not None
    return Dataset(*seen, found, about(config, f"{len(found)} saved episodes"), rate_hz)


def from_session(folder: Path, open_run: Callable[[str], Run], name: str | None) -> Dataset:
    """Return the episodes of a session of `run-robot`.

    Args:
        folder: Of the session.
        open_run: Opens a run by its name.
        name: Of the run whose policy acted; None for the one that the session names.

    Raises:
        ConfigError: Its log is not of that run's task.
    """
    try:
        facts = parse_json(read_plain_file(folder / SESSION, LARGEST_MANIFEST_BYTES))
        name = name or facts["run"]
        if not isinstance(name, str):
            raise ValueError("it names no run")
        rate_hz = float(facts["hz"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = printable(folder / SESSION)
        raise ConfigError(f"{where}: {one_line(error)}. Name the run with --run RUN.") from error
    run = open_run(name)
    with closing(run.env(1)) as venv:
        observation, action = venv.observation_space, venv.action_space
    names, numbers = read_numbers(folder / LOG)
    parts = _columns(names, ("observation/",)), _columns(names, _ACTIONS)
    sizes = [sum(_size(space) for space in parts_of(one).values()) for one in (observation, action)]
    if "episode" not in names or [len(part) for part in parts] != sizes:
        raise ConfigError(
            f"{printable(folder / LOG)} has {len(parts[0])} observations and {len(parts[1])} "
            f"actions a step, and the task of {printable(name)} {sizes[0]} and {sizes[1]}. Name "
            "the run whose policy acted with --run RUN."
        )
    number = numbers[:, names.index("episode")]
    rewards = numbers[:, names.index("reward")] if "reward" in names else np.zeros(len(numbers))
    found = []
    for one in np.unique(number):
        rows = number == one
        if rows.sum() > 1:
            seen = _unflat(numbers[rows][:, parts[0]], observation)
            chosen = _unflat(numbers[rows][:-1][:, parts[1]], action)
            found.append(Demonstration(seen, chosen, rewards[rows][:-1], terminated=False))
    if not found:
        raise ConfigError(f"{printable(folder / LOG)} has no episode of two steps or more.")
    return Dataset(observation, action, found, about(run.config, "a session on a robot"), rate_hz)


def from_lerobot(folder: Path, open_run: Callable[[str], Run], name: str | None) -> Dataset:
    """Return the episodes of a dataset of LeRobot, for the task of a run.

    Raises:
        ConfigError: No run is named, or the dataset is not of its task.
    """
    if name is None:
        raise ConfigError(
            f"{printable(folder)} is a dataset of LeRobot, which does not know the task's spaces. "
            "Name a run of the task with --run RUN."
        )
    run = open_run(name)
    with closing(run.env(1)) as venv:
        spaces_ = venv.observation_space, venv.action_space
    found: Dataset = _lerobot_format().read_lerobot(folder, *spaces_)
    return replace(found, about=about(run.config, "a dataset of LeRobot"))


def _lerobot_format() -> Any:
    """Return the module of LeRobot's format, whose library is an extra of its own."""
    from rlzoo_plus.demonstrations import lerobot_format

    return lerobot_format


def about(config: RunConfig, told: str) -> dict[str, str]:
    """Return what a dataset says of its origin, in the words of Minari's metadata."""
    name, algorithm = (
        re.sub(r"[^-\w]+", "-", str(part)) for part in (config.env.name, config.algo.name)
    )
    return {
        "dataset_id": f"{name}/{algorithm}-v0",
        "algorithm_name": config.algo.name,
        "description": f"{told}; environment {config.env.id} {json.dumps(config.env.kwargs)}",
    }


def _of_episode(episode: Episode, seen: Sequence[Any]) -> Demonstration:
    return Demonstration(
        observations=stacked([*seen, episode.last_observation]),
        actions=episode.actions,
        rewards=np.asarray(episode.rewards, np.float64),
        terminated=episode.terminated,
        seed=episode.seed,
    )


def _columns(names: Sequence[str], prefixes: Sequence[str]) -> list[int]:
    return [at for at, name in enumerate(names) if name.startswith(tuple(prefixes))]


def _size(space: spaces.Space[Any]) -> int:
    return int(np.prod(space.shape or (1,)))


def _unflat(numbers: np.ndarray, space: spaces.Space[Any]) -> Rows:
    """Return flat rows as rows of a space."""

    def parts() -> Iterator[tuple[str, np.ndarray]]:
        start = 0
        for key, part in parts_of(space).items():
            one = numbers[:, start : start + _size(part)]
            start += _size(part)
            yield key, one.reshape(len(numbers), *(part.shape or ())).astype(part.dtype)

    return joined(dict(parts()))

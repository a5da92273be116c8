"""An agent that the RL Zoo saved: its files, and the configuration that they describe.

The RL Zoo writes <env>_1/<env>.zip, and <env>_1/<env>/ with `config.yml`, `args.yml` and
`vecnormalize.pkl`; its models on the Hugging Face hub hold all of it in one folder. The files are
untrusted: they are read as data, and no module that they name is imported.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.config.zoo_files import (
    EnvFile,
    load_env_files,
    stated_settings,
)
from rlzoo_plus.config.zoo_import import convert_entry, read_zoo_file
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import import_user_module

_STATISTICS = ("vecnormalize.pkl", "vec_normalize.pkl")
# Zips beside the agent's own.
_OTHER_ZIPS = re.compile(r"best_model|rl_model_\d+_steps|train_eval_metrics")


@dataclass(frozen=True)
class AgentFiles:
    """The files of one agent."""

    archive: Path  # The zip of its policy
    statistics: Path | None  # The statistics of its observations, None if there are none
    settings: Path | None  # The folder of `config.yml` and `args.yml`, None if there is none


@dataclass(frozen=True)
class AgentSettings:
    """What `config.yml` and `args.yml` say, in the terms of this project."""

    algo: str  # The algorithm
    env_id: str  # The id of the environment as it was
    values: dict[str, Any]  # Values of a configuration, without the environment's id
    notes: list[str] = field(default_factory=list)  # What could not be expressed

    @property
    def normalizes_observations(self) -> bool:
        """Tell whether the policy was trained on normalized observations."""
        given = self.values["normalize"]
        return bool(given.get("observation", True) if isinstance(given, dict) else given)


def find_files(path: Path) -> AgentFiles:
    """Return the files of an agent, given its zip or a folder of the RL Zoo.

    Raises:
        ConfigError: A folder holds no zip, or several.
    """
    archive = _zip_in(path) if path.is_dir() else path
    places = [archive.parent / archive.stem, archive.parent]
    if _OTHER_ZIPS.fullmatch(archive.stem) and archive.parent.is_dir():
        places += sorted(place for place in archive.parent.iterdir() if place.is_dir())
    settings = next((p for p in places if (p / "config.yml").is_file()), None)
    homes = places[:2] if settings is None else [settings]
    found = (home / name for home in homes for name in _STATISTICS)
    return AgentFiles(archive, next((file for file in found if file.is_file()), None), settings)


def _zip_in(folder: Path) -> Path:
    zips = sorted(folder.glob("*.zip"))
    agents = [path for path in zips if (path.parent / path.stem / "config.yml").is_file()]
    agents = agents or [path for path in zips if not _OTHER_ZIPS.fullmatch(path.stem)]
    # The folder of the settings alone.
    beside = folder.parent / f"{folder.name}.zip"
    agents = agents or ([beside] if beside.is_file() else zips)
    if len(agents) != 1:
        names = ", ".join(path.name for path in agents) or "none"
        raise ConfigError(f"{folder}: the zip of one agent is expected, found: {names}. Name it.")
    return agents[0]


def read_settings(folder: Path, algo: str | None) -> AgentSettings:
    """Read what an agent was trained with; `algo` wins over the file.

    Raises:
        ConfigError: A file is damaged, or describes an agent of before SB3 1.1.
    """
    entry, files = read_zoo_file(folder / "config.yml"), ("args.yml", "env_kwargs.yml")
    arguments, env_kwargs = (
        read_zoo_file(folder / name) if (folder / name).is_file() else {} for name in files
    )
    if "model_class" in entry:
        raise ConfigError(
            f"{folder / 'config.yml'}: model_class={entry['model_class']!r} is hindsight replay of "
            "before Stable-Baselines3 1.1. Its policies read flat observations, those of today a "
            "dictionary: train the agent again."
        )
    if given := env_kwargs or arguments.get("env_kwargs"):
        entry["env_kwargs"] = given
    algo = algo or str(arguments.get("algo") or "")
    algo = ALGORITHM_OF_STEM.get(algo, algo)
    if not algo:
        raise ConfigError(f"{folder} has no args.yml that says the algorithm: add --algo.")
    converted = convert_entry(algo, entry)
    if packages := arguments.get("gym_packages"):
        converted.warnings.append(
            f"its environment was registered by {packages}: add env.packages=[...] if it is missing"
        )
    return AgentSettings(
        algo, str(arguments.get("env") or ""), converted.values, converted.warnings
    )


def environment_values(env_id: str) -> tuple[dict[str, Any], EnvFile, list[str]]:
    """Return the values that choose an environment, its file, and notes for the user.

    An id that is no longer registered, or needs a package that no longer exists, is replaced by
    its newest version.

    Raises:
        ConfigError: The id names a module, or its package is missing.
    """
    if ":" in env_id:
        raise ConfigError(
            f"args.yml: env={env_id} imports a module. If you trust it, add --env {env_id}."
        )
    shipped = load_env_files(conf_dir() / "env")
    if env_id in shipped:
        return {"id": env_id}, shipped[env_id], []
    stated = stated_settings(env_id)
    for package in stated.get("packages", ()):
        import_user_module(env_id, package, install=f"pip install {package.replace('_', '-')}")
    newest = _newest(env_id)
    notes = []
    if newest != env_id:
        notes.append(f"{env_id} is gone: taking {newest}, its newest version, which may differ")
    if newest in shipped:
        return {"id": newest}, shipped[newest], notes
    packages = {"packages": stated["packages"]} if "packages" in stated else {}
    return {"id": newest, **packages}, EnvFile("gym", stated.get("wrappers", [])), notes


def _newest(env_id: str) -> str:
    """Return an id that can be made, else its newest version, else the id."""
    with warnings.catch_warnings(action="ignore"):
        try:
            gym.make(env_id).close()
            return env_id
        # The package is not ours: it may raise anything.
        except Exception:
            pass
    try:
        namespace, name, _ = parse_env_id(env_id)
    except gym.error.Error:
        return env_id
    version = find_highest_version(namespace, name)
    return env_id if version is None else get_env_id(namespace, name, version)

"""Gives a new agent its demonstrations, all or a share of what it learns from; or its teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.demonstrations.cloning import BehaviorCloning
from rlzoo_plus.demonstrations.dataset import Dataset, joined, require_fit
from rlzoo_plus.demonstrations.minari_format import digest, read_dataset
from rlzoo_plus.demonstrations.mixed_replay import mix
from rlzoo_plus.demonstrations.teacher import load_teacher, with_teacher
from rlzoo_plus.errors import ConfigError


def with_digest(config: RunConfig) -> RunConfig:
    """Return a configuration that names its dataset, or teacher, by an absolute path and a hash.

    Raises:
        ConfigError: There is no such dataset, or it is not that of `data.sha256`.
    """
    if config.data.path is None:
        return with_teacher(config)
    path = Path(str(config.data.path)).expanduser().absolute()
    found = digest(path)[:16]
    wanted = config.data.sha256
    if wanted is not None and wanted != found:
        raise ConfigError(
            f"data={config.data.path}: its content is {found}, and this run learns from {wanted}. "
            "It was changed: name the dataset that the run began with in data.path."
        )
    update = {"path": str(path), "sha256": found}
    return config.model_copy(update={"data": config.data.model_copy(update=update)})


def attach(agent: Any, config: RunConfig) -> None:
    """Let a new agent learn from the dataset of its run, or from its teacher.

    Raises:
        ConfigError: The dataset or the teacher is damaged, was changed, or is of another task.
    """
    if config.data.path is None:
        agent.teacher = load_teacher(config, agent.observation_space, agent.action_space)
        return
    dataset = read_dataset(Path(str(with_digest(config).data.path)))
    require_fit(dataset, agent.observation_space, agent.action_space)
    if isinstance(agent, BehaviorCloning):
        agent.demonstrations = dataset
        _take_statistics(agent, dataset)
    else:
        mix(agent, dataset, config.data.share)


def _take_statistics(agent: Any, dataset: Dataset) -> None:
    """Normalize by what was demonstrated: the environment is not stepped."""
    normalizer = agent.get_vec_normalize_env()
    if normalizer is None or not normalizer.norm_obs:
        return
    seen = joined(one.observations for one in dataset.episodes)
    if isinstance(normalizer.obs_rms, dict):
        for key, statistics in normalizer.obs_rms.items():
            statistics.update(np.asarray(seen[key], np.float64))
    elif isinstance(normalizer.observation_space, spaces.Box):
        normalizer.obs_rms.update(np.asarray(seen, np.float64))

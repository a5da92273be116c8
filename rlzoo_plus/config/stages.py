"""The stages of a run with a curriculum: their environments, and that of a checkpoint."""

from __future__ import annotations

from typing import Any

from rlzoo_plus.config.curriculum import PREFIX
from rlzoo_plus.config.schema import EnvConfig, RunConfig


def env_of_stage(config: RunConfig, stage: int) -> EnvConfig:
    """Return the environment of a stage; after the last one it is the run's own."""
    if stage == len(config.curriculum):
        return config.env
    kwargs = _copied(config.env.kwargs)
    for key, value in config.curriculum[stage].set.items():
        *path, name = key.removeprefix(PREFIX).split(".")
        inner = kwargs
        for part in path:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[name] = value
    return config.env.model_copy(update={"kwargs": kwargs})


def config_of_stage(config: RunConfig, stage: int) -> RunConfig:
    """Return a configuration with the environment of a stage."""
    return config.model_copy(update={"env": env_of_stage(config, stage)})


def decides_by_evaluation(config: RunConfig) -> bool:
    """Return whether an evaluation may change the stage, so that the training waits for it."""
    conditions = [one for stage in config.curriculum for one in (stage.until, stage.fall_back)]
    given = [name for one in conditions if one is not None for name in one.given()]
    return any(name.startswith("eval_") for name in given)


def stage_in(about: Any, config: RunConfig) -> int:
    """Return the stage that a checkpoint's manifest, which is untrusted, tells; 0 without one.

    Raises:
        ValueError: There is no such stage.
    """
    if not config.curriculum:
        return 0
    stage = about.get("stage", 0)
    if type(stage) is not int or not 0 <= stage <= len(config.curriculum):
        raise ValueError(f"the curriculum has no stage {stage!r}")
    return stage


def _copied(data: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping that can be changed at every level."""
    return {key: _copied(v) if isinstance(v, dict) else v for key, v in data.items()}

"""A curriculum: easier environments in which a run learns before it gets to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from rlzoo_plus.config.section import Count, Number, Section

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import EnvConfig, RunConfig

_PREFIX = "env.kwargs."
Share = Annotated[Number, Field(ge=0, le=1)]


class StageCondition(Section):
    """What must hold for the stage to change; all that is set must."""

    steps: Count | None = None  # environment steps in the stage
    success_rate: Share | None = None  # of its last episodes of training
    mean_return: Number | None = None  # of its last episodes of training
    eval_success_rate: Share | None = None  # of its last evaluation, in the run's own environment
    eval_mean_return: Number | None = None

    @model_validator(mode="after")
    def _is_set(self) -> StageCondition:
        if not self.given():
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"needs one of {names}")
        return self

    def given(self) -> dict[str, float]:
        """Return what is set."""
        return self.model_dump(exclude_none=True)


class StageConfig(Section):
    """One easier environment."""

    # `env.kwargs.KEY: value`, what differs from the run's own environment
    set: Annotated[dict[str, Any], Field(min_length=1)]
    until: StageCondition  # each at least: the next stage begins
    fall_back: StageCondition | None = None  # each at most, in the next stage: this one again
    episodes: Annotated[Count, Field(le=10_000)] = 100  # how many the means are of

    @model_validator(mode="after")
    def _sets_arguments(self) -> StageConfig:
        for key in self.set:
            if not key.startswith(_PREFIX) or not all(key.removeprefix(_PREFIX).split(".")):
                raise ValueError(
                    f"set: {key!r} is no argument of the environment. Write env.kwargs.NAME"
                )
        if self.fall_back is not None and self.fall_back.steps is not None:
            raise ValueError("fall_back: steps cannot be a reason to fall back")
        return self


def env_of_stage(config: RunConfig, stage: int) -> EnvConfig:
    """Return the environment of a stage; after the last one it is the run's own."""
    if stage == len(config.curriculum):
        return config.env
    kwargs = _copied(config.env.kwargs)
    for key, value in config.curriculum[stage].set.items():
        *path, name = key.removeprefix(_PREFIX).split(".")
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

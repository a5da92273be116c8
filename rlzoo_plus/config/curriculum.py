"""A curriculum: easier environments in which a run learns before it gets to its own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from rlzoo_plus.config.section import Count, Number, Section

PREFIX = "env.kwargs."
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
            if not key.startswith(PREFIX) or not all(key.removeprefix(PREFIX).split(".")):
                raise ValueError(
                    f"set: {key!r} is no argument of the environment. Write env.kwargs.NAME"
                )
        if self.fall_back is not None and self.fall_back.steps is not None:
            raise ValueError("fall_back: steps cannot be a reason to fall back")
        return self

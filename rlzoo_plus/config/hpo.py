"""The settings of a study: how values are searched for, and what is done with the best ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.config.numbers import Count, NonNegative, PositiveFloat

Direction = Literal["maximize", "minimize"]


class HpoSection(BaseModel):
    """A part of a study's settings: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RetrainConfig(HpoSection):
    """The best trials, trained again: what is reported is not what they were chosen by.

    Attributes:
        best: How many of the best trials; 0 for none.
        seeds: Fresh seeds that each of them is trained with, at the run's full `n_timesteps`.
        episodes: Held-out episodes that the winner plays for the last figure.
    """

    best: NonNegative
    seeds: Count
    episodes: Count


class HpoConfig(HpoSection):
    """A study; the values and what they mean are in conf/hpo/_study.yaml."""

    algo: str | None
    study: Annotated[str, Field(min_length=1)] | None
    n_trials: Count
    timeout_minutes: PositiveFloat | None
    n_timesteps: Count | None
    seeds: Count
    objectives: Annotated[dict[str, Direction], Field(min_length=1)]
    constraints: list[str]
    storage: Annotated[str, Field(min_length=1)]
    heartbeat_s: Count
    sampler: str
    sampler_options: dict[str, Any]
    pruner: str
    pruner_options: dict[str, Any]
    seed: NonNegative
    warm_start: bool
    retries: NonNegative
    keep: Literal["all", "best", "none"]
    space: dict[str, Any]
    custom: str | None
    retrain: RetrainConfig
    experiment: Annotated[str, Field(min_length=1)] | None

"""The settings of a population: `hpo.sampler_options` of `hpo.sampler=pbt`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.errors import ConfigError, unknown_name

PBT = "pbt"
_WHERE = "hpo.sampler_options"


class PopulationSettings(BaseModel):
    """How many members there are, how often they are compared, and how values change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    population: Annotated[int, Field(ge=2, le=1000)] = 8
    segments: Annotated[int, Field(ge=2, le=1000)] = 10
    """Parts of a training; after each, members are compared."""
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """Of the members: so many of the worst go on from one of as many of the best."""
    factor: Annotated[float, Field(gt=1, le=10)] = 1.2
    """A value is multiplied with it, or divided."""
    redraw: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Probability that a value is drawn anew instead."""
    grow: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability that one that goes on from another gets a wider network of the search space."""


def read_settings(options: dict[str, Any]) -> PopulationSettings:
    """Read the settings.

    Raises:
        ConfigError: It names the first one that is wrong.
    """
    known = PopulationSettings.model_fields
    for name in options:
        if name not in known:
            raise ConfigError(unknown_name(f"option of hpo.sampler={PBT}", name, known))
    try:
        return PopulationSettings(**options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        given = options.get(key)
        raise ConfigError(f"{_WHERE}.{key}={given}: {first['msg']}.") from error


def population_mistakes(hpo: HpoConfig) -> list[str]:
    """Return what does not go with a population, where `hpo.sampler` asks for one."""
    found = []
    try:
        read_settings(hpo.sampler_options)
    except ConfigError as error:
        found.append(str(error))
    if hpo.seeds != 1 or hpo.constraints or hpo.storage != "journal":
        found.append(
            f"hpo.sampler={PBT}: members are compared while they train, so hpo.seeds, "
            "hpo.constraints and hpo.storage have no meaning. Leave them out."
        )
    if dict(hpo.objectives) != {"late_return": "maximize"}:
        found.append(
            f"hpo.sampler={PBT} maximizes late_return, the mean of the last evaluations. Leave "
            "hpo.objectives out."
        )
    return found

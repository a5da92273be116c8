"""What the sections of a configuration are made of: `Section`, and types of its values."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_SHORT_NUMBER = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[kmbgKMBG])", re.ASCII)


def _whole_number(value: Any) -> Any:
    """Read 1e6 as 1000000, and refuse true and false as numbers."""
    if isinstance(value, bool):
        raise ValueError("needs a whole number")
    if isinstance(value, str) and (short := _SHORT_NUMBER.fullmatch(value.strip())):
        power = {"k": 3, "m": 6, "b": 9, "g": 9}[short["unit"].lower()]
        raise ValueError(f"must be a whole number. Write {short['number']}e{power}")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("needs a number")
    return value


def _one_line(value: str) -> str:
    # In a log or a table, a second line could pass for a message of this package.
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


# A double counts exactly up to here, and no run takes as many steps.
LARGEST = 10**15
# Each reset is the beginning of an episode, before the first step.
MOST_WARMUP_RESETS = 100
MOST_EPISODES = 100_000
# torch fails with many thousands.
MOST_THREADS = 1024
# On one machine.
MOST_RANKS = 256
# Transitions between two processes.
MOST_WAITING = 1_000_000
# Seeds of environments count up from the first; so many are reserved.
MOST_ENVS = 100_000

Count = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=LARGEST)]
NonNegative = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, le=LARGEST)]
Number = Annotated[float, BeforeValidator(_not_bool)]
NonNegativeFloat = Annotated[float, BeforeValidator(_not_bool), Field(ge=0)]
PositiveFloat = Annotated[float, BeforeValidator(_not_bool), Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
# Text for messages, tables and file names.
Line = Annotated[str, AfterValidator(_one_line)]
# Names, and `{name: {argument: value}}` for those with arguments.
Named = list[str | dict[str, dict[str, Any] | None]]
EnvCount = Annotated[Count, Field(le=MOST_ENVS)]
Few = Annotated[Count, Field(le=100)]
LayerSizes = list[Count]


class Section(BaseModel):
    """A section of the configuration; unknown keys are errors, `model_dump` returns plain data."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )

    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        """Return the sections in it by key, also those that may be null."""
        return {
            name: kind
            for name, field in cls.model_fields.items()
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, Section)
        }

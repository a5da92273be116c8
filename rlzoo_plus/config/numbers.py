"""The kinds of numbers that settings are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _whole_number(value: Any) -> Any:
    """Let 1e6 stand for 1000000, and refuse true and false as numbers."""
    if isinstance(value, bool):
        raise ValueError("needs a whole number")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_bool(value: Any) -> Any:
    """Refuse true and false as numbers."""
    if isinstance(value, bool):
        raise ValueError("needs a number")
    return value


# What a double still counts one by one, and far more steps than any run takes.
LARGEST = 10**15

Count = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=LARGEST)]
NonNegative = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, le=LARGEST)]
Number = Annotated[float, BeforeValidator(_not_bool)]
NonNegativeFloat = Annotated[float, BeforeValidator(_not_bool), Field(ge=0)]
PositiveFloat = Annotated[float, BeforeValidator(_not_bool), Field(gt=0)]

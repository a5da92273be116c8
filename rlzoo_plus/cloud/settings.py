"""The keys of `infra=aws_batch` and `infra=ec2_spot`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlzoo_plus.config.section import Count, Line, NonNegative, PositiveFloat
from rlzoo_plus.sweeps.launchers.workers import WorkersSettings

# What aws/stack.yaml has by default.
LARGEST_VCPUS = 4
_MOST_HOURS = 24.0 * 365.0


class CloudSettings(WorkersSettings):
    """The keys of `infra=aws_batch` and `infra=ec2_spot`; conf/infra/ explains them."""

    # The most vCPUs of a machine that a run may get, unless it needs more: of a project by default.
    largest_vcpus: ClassVar[int] = LARGEST_VCPUS
    wait: bool = False
    project: Line | None = None
    spot: bool = True
    families: list[Line] = Field(default_factory=list)
    vcpus: Count | Literal["auto"] = "auto"
    max_usd: PositiveFloat | None = None
    max_hours: Annotated[PositiveFloat, Field(le=_MOST_HOURS)] = 24.0
    attempts: Annotated[Count, Field(le=10)] = 10
    gpus: NonNegative = 0
    secrets: dict[str, Line] = Field(default_factory=dict)
    dry_run: bool = False


class FleetSettings(CloudSettings):
    """The keys of `infra=ec2_spot`; conf/infra/ec2_spot.yaml explains them."""

    # A machine has the size that its runs need.
    largest_vcpus: ClassVar[int] = 1
    slots: Count | Literal["auto"] = "auto"
    ami: Line | None = None

"""What machines, disks and requests cost in AWS: a dated table, so that nobody has to be asked."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.cloud.template import prices_path
from rlzoo_plus.errors import ConfigError, unknown_name

VARIABLE = "RLZOO_PRICES"
_LARGEST_BYTES = 2**20
HOURS_A_MONTH = 730.0

Size = Annotated[str, Field(pattern=r"^(medium|large|([1-9][0-9]?)?xlarge)$")]
Usd = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Machine(_Table):
    """A size of a family whose machines have GPUs: its price [$/hour], vCPUs and GPUs."""

    usd: Usd
    vcpus: Annotated[int, Field(gt=0)]
    gpus: Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class HourPrice:
    """What an hour costs."""

    expected: float  # What it usually costs [$]; of Spot machines an estimate
    highest: float  # The most that it can cost [$]


class Prices(_Table):
    """A table of prices; aws/prices.yaml explains the keys."""

    date: datetime.date
    source: str
    region: str
    on_demand: dict[str, Usd]
    sizes: dict[str, list[Size]]
    machines: dict[str, dict[str, Machine]]
    spot_share: Annotated[float, Field(gt=0, le=1)]
    regions: dict[str, dict[str, Usd]]
    gp3_gb_month: Usd
    ipv4_hour: Usd
    s3_gb_month: Usd
    s3_writes_1000: Usd
    s3_reads_1000: Usd
    ecr_gb_month: Usd
    logs_gb: Usd
    logs_gb_month: Usd

    def usd_per_hour(
        self,
        family: str,
        vcpus: int,
        *,
        gpus: int = 0,
        spot: bool = True,
        bid: float = 100.0,
        region: str | None = None,
    ) -> HourPrice:
        """Return what an hour of a part of a machine costs.

        Args:
            family: `c7a`, or a type, `c7a.4xlarge`; of a family with GPUs the smallest size that
                has enough, as a whole.
            vcpus: Number of vCPUs.
            gpus: Number of GPUs.
            spot: Whether it is a Spot machine.
            bid: The highest Spot price that is paid, in percent of the on-demand price.
            region: Where it is; None for the region of the table.
        """
        name = family.partition(".")[0]
        whole = self._on_demand(name, vcpus, gpus) * self._factor(name, region)
        return self._hour(whole, spot, bid)

    def known_usd_per_hour(self, kind: str, vcpus: int, **more: Any) -> HourPrice | None:
        """Return what an hour of a whole machine costs, None if no price is known.

        `kind` is its type, `c7a.4xlarge`; for the others see `usd_per_hour`.
        """
        family, _, size = kind.partition(".")
        machine = self.machines.get(family, {}).get(size)
        with contextlib.suppress(ConfigError):
            if machine is None:
                return self.usd_per_hour(family, vcpus, **more)
            whole = machine.usd * self._factor(family, more.get("region"))
            return self._hour(whole, more.get("spot", True), more.get("bid", 100.0))
        return None

    def types_of(self, family: str) -> dict[str, int]:
        """Return the types of a family with their vCPUs, the smallest first."""
        if family in self.machines:
            found = {f"{family}.{size}": m.vcpus for size, m in self.machines[family].items()}
        else:
            self._on_demand(family, 1, 0)
            sizes = self.sizes.get(family, self.sizes["all"])
            found = {f"{family}.{size}": _vcpus(size) for size in sizes}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def _hour(self, whole: float, spot: bool, bid: float) -> HourPrice:
        if not spot:
            return HourPrice(whole, whole)
        highest = whole * (min(bid, 100.0) / 100.0)
        return HourPrice(min(whole * self.spot_share, highest), highest)

    def _factor(self, family: str, region: str | None) -> float:
        """Return the price in a region as a multiple of that in the table."""
        if region in (None, self.region):
            return 1.0
        there = self.regions.get(region or "", {})
        for key in (family, family[0], "all"):
            if key in there:
                return there[key]
        where = printable(region)
        raise ConfigError(
            f"no price of {family} is known in region {where!r}. If it is 1.2 times that in "
            f"{self.region}, write `regions: {{{where}: {{{family}: 1.2}}}}` into a file of yours "
            f"and set {VARIABLE}=FILE."
        )

    def _on_demand(self, family: str, vcpus: int, gpus: int) -> float:
        if family in self.machines:
            sizes = self.machines[family].values()
            enough = [m.usd for m in sizes if m.vcpus >= vcpus and m.gpus >= gpus]
            if not enough:
                raise ConfigError(
                    f"no size of {family} has {vcpus} vCPUs and {gpus} GPUs: the largest has "
                    f"{max(m.vcpus for m in sizes)} and {max(m.gpus for m in sizes)}. Ask for less."
                )
            return min(enough)
        if family not in self.on_demand:
            known = [*self.on_demand, *self.machines]
            wrong = unknown_name("instance family", printable(family), known)
            raise ConfigError(f"{wrong} For another one, give its price in {VARIABLE}=FILE.")
        if gpus:
            raise ConfigError(
                f"machines of {family} have no GPU. Take infra.families=[g5] or another one of "
                f"{', '.join(self.machines)}."
            )
        return self.on_demand[family] * vcpus


def _vcpus(size: str) -> int:
    """Return the vCPUs of a size of all families whose price is one of a vCPU."""
    few = {"medium": 1, "large": 2}
    return few[size] if size in few else 4 * int(size.removesuffix("xlarge") or 1)


def load_prices() -> Prices:
    """Return the shipped prices, with those of the user's file in their place."""
    return _load(os.environ.get(VARIABLE) or None)


@cache
def _load(own: str | None) -> Prices:
    shipped = prices_path()
    values = _read(shipped)
    if own is not None:
        values = _merged(values, _read(Path(own).expanduser()))
    where = f"{VARIABLE}={printable(own)}" if own is not None else str(shipped)
    try:
        return Prices.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{where}: {printable(key)}: {printable(wrong['msg'])}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path} is no table of prices: it is too large.")
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: the prices cannot be read: {one_line(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is no table of prices; see aws/prices.yaml.")
    return values


def _merged(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for key, value in own.items():
        old = values.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged

"""The plan of a dry run: jobs, hours and dollars, from a probe on this machine and dated prices."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlzoo_plus.analysis.run_list import counted, duration
from rlzoo_plus.cloud.prices import HOURS_A_MONTH, HourPrice, Prices, load_prices
from rlzoo_plus.cloud.settings import CloudSettings
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.estimate import JobTime, job_times, longest_episodes, makespan, probe_jobs

# Time to measure how fast runs train here [s].
PROBE_S = 15.0
# What aws/stack.yaml has by default, and a family with GPUs: the project is not asked.
FAMILY, GPU_FAMILY, PROJECT_VCPUS, DISK_GB = "c7a", "g6", 64, 40
# Estimates for what the prices do not show: from the start of a machine to the first step [s], what
# a machine that ends without notice takes with it [s], requests in an hour of a run.
_BOOT_S, _LOST_S, _WRITES_AN_HOUR = 180.0, 600.0, 300.0


def measure(configs: Sequence[RunConfig]) -> list[JobTime]:
    """Train some of the runs here for some seconds; return the time of each, none if unknown."""
    jobs = list(configs)
    result = probe_jobs(jobs, PROBE_S, is_sweep=True, compares=False)
    return job_times(result, jobs, longest_episodes(jobs))


def vcpus_of(settings: CloudSettings, threads: int) -> int:
    """Return the vCPUs for each run, given the cores that one keeps busy."""
    return max(1, threads) if settings.vcpus == "auto" else settings.vcpus


def plan_lines(
    configs: Mapping[str, RunConfig],
    times: Sequence[JobTime],
    settings: CloudSettings,
    vcpus: int,
    what: str,
    spent: Mapping[str, float] | None = None,
) -> list[str]:
    """Return what would be started, how long it takes and what it costs; nobody is asked.

    Args:
        configs: The configurations of the runs by their keys.
        times: The time of each, in the same order; empty if it is not known.
        settings: The settings of the launcher.
        vcpus: VCPUs for each run.
        what: What starts the machines, as in "on {what}".
        spent: What each run of the sweep has cost before [$]; the times are of whole runs anyway.
    """
    prices, families = load_prices(), _families_of(settings)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    price = _slot_price(prices, settings, vcpus, region)
    count, kind = len(configs), "Spot" if settings.spot else "on-demand"
    per_run = counted(vcpus, "vCPU")
    if settings.gpus:
        per_run += f" and {counted(settings.gpus, 'GPU')}"
    estimate = f"; Spot at {prices.spot_share:.0%} of on-demand is an estimate"
    return [
        f"runs: {count:,} on {what}, {kind} machines of {', '.join(families)}, {per_run} each; "
        f"{_at_once(count, vcpus):,} at once (a project has {PROJECT_VCPUS} vCPUs by default)",
        *_time_and_cost(times, settings, vcpus, price, prices),
        *_cap_lines(configs, times, settings, price, spent or {}),
        f"prices: of {prices.date} for {region or prices.region}, from {prices.source}"
        f"{estimate if settings.spot else ''}",
        "nothing was started, and nobody was asked",
    ]


def _slot_price(
    prices: Prices, settings: CloudSettings, vcpus: int, region: str | None
) -> HourPrice:
    """Return what an hour of a run costs: its part of a machine, and at most the whole of one."""
    more: dict[str, Any] = {"gpus": settings.gpus, "spot": settings.spot, "region": region}
    names, largest = _families_of(settings), max(vcpus, settings.largest_vcpus)
    parts = [prices.usd_per_hour(name, vcpus, **more) for name in names]
    wholes = []
    for name in names:
        enough = [size for size in prices.types_of(name).values() if size >= largest]
        wholes.append(prices.usd_per_hour(name, min(enough, default=largest), **more))
    mean = sum(price.expected for price in parts) / len(parts)
    return HourPrice(mean, max(price.highest for price in wholes))


def _families_of(settings: CloudSettings) -> list[str]:
    """Return the instance families that are asked for, by default that of a project's stack."""
    return list(settings.families) or [GPU_FAMILY if settings.gpus else FAMILY]


def _cost_of(
    times: Sequence[JobTime], settings: CloudSettings, price: HourPrice, prices: Prices
) -> tuple[float, float, float]:
    """Return what runs that take these times cost [$].

    Returns:
        As fast as here, if no machine is taken away; at the highest price, if every run is
        interrupted as often as it is tried again; and what the prices of machines do not show:
        their start, disks, addresses, requests.
    """
    hours = sum(time.seconds for time in times) / 3600.0
    again = len(times) * (settings.attempts - 1) * _LOST_S / 3600.0 if settings.spot else 0.0
    an_hour = prices.ipv4_hour + prices.gp3_gb_month * DISK_GB / HOURS_A_MONTH
    an_hour += prices.s3_writes_1000 * _WRITES_AN_HOUR / 1000.0
    starts = len(times) * _BOOT_S / 3600.0 * price.expected
    return hours * price.expected, (hours + again) * price.highest, hours * an_hour + starts


def _time_and_cost(
    times: Sequence[JobTime],
    settings: CloudSettings,
    vcpus: int,
    price: HourPrice,
    prices: Prices,
) -> list[str]:
    if not times:
        return [
            "time: not known, the runs were not measured here",
            f"machines: an hour of a run is about {_about(price.expected)}, at most "
            f"{_about(price.highest)}",
        ]
    seconds = sorted(time.seconds for time in times)
    first, last = duration(seconds[0]), duration(seconds[-1])
    each = first if first == last else f"{first} to {last}"
    known = all(time.evaluating_s is not None for time in times)
    note = "evaluations included" if known else "without the time for evaluations"
    here = "here without your GPUs" if settings.gpus else "here"
    whole = duration(makespan(seconds, _at_once(len(seconds), vcpus)))
    expected, highest, beside = _cost_of(times, settings, price, prices)
    worst = "at the on-demand price"
    if settings.spot and settings.attempts > 1:
        worst += f" and if each run is interrupted {settings.attempts - 1} times without notice"
    return [
        f"time: {each} a run, {note}, as fast as {here}; {duration(sum(seconds))} in all, "
        f"{whole} until the last one ends",
        f"machines: about {_about(expected)}; at most {_about(highest)}, {worst}",
        f"beside: about {_about(beside)} for starts of machines, disks, addresses and "
        "requests, then storage; infra.max_usd does not count it",
    ]


def _at_once(count: int, vcpus: int) -> int:
    return max(1, min(count, PROJECT_VCPUS // vcpus))


def _cap_lines(
    configs: Mapping[str, Any],
    times: Sequence[JobTime],
    settings: CloudSettings,
    price: HourPrice,
    spent: Mapping[str, float],
) -> list[str]:
    if settings.max_usd is None:
        return ["cap: none; with infra.max_usd=DOLLARS runs stop, with a checkpoint, in time"]
    least = least_share(price.highest)
    shares = deal(settings.max_usd, spent, configs, least_usd=least)
    share = min(usd - spent.get(key, 0.0) for key, usd in shares.items())
    enough_s = 3600.0 * share / price.highest
    used = math.fsum(spent.values())
    before = f", of which {_about(used)} are spent" if used else ""
    line = (
        f"cap: {_about(settings.max_usd)} for machines{before}, {_about(share)} for each run: "
        f"{duration(enough_s)} at the highest price"
    )
    short = sum(time.seconds > enough_s for time in times)
    if short:
        needed = used + len(times) * max(time.seconds for time in times) / 3600.0 * price.highest
        line += (
            f"; {counted(short, 'run')} would stop early, with a checkpoint; about "
            f"infra.max_usd={_rounded_up(needed)} lets all finish"
        )
    return [line]


def _rounded_up(usd: float) -> str:
    """Return an amount with two digits that is not below it."""
    digit = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return f"{math.ceil(usd / digit * 1.000001) * digit:.12g}"


def _about(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}"


# Shares are whole numbers of micro-dollars, so that their sum is exact.
_MICRO = 1_000_000
# A share pays for this long at least, or nothing is started [s].
LEAST_S = 300.0


def deal(
    total_usd: float,
    spent: Mapping[str, float],
    unfinished: Collection[str],
    *,
    least_usd: float = 0.0,
) -> dict[str, float]:
    """Return what each unfinished run may cost over all its attempts: its `max_usd` [$].

    That is what it has spent, and its part of what is left of the budget. So what others left goes
    to those that are not finished, and all together never cost more than the budget.

    Args:
        total_usd: The budget of the sweep [$].
        spent: What each run has cost so far [$], finished and cancelled ones among them.
        unfinished: The keys of the runs that go on.
        least_usd: A part below it is of no use: it would not pay for a start [$].
    """
    if not unfinished:
        return {}
    known = {key: _micro(usd, math.ceil) for key, usd in spent.items()}
    used, least = sum(known.values()), max(_micro(least_usd, math.ceil), 1)
    left = _micro(total_usd, math.floor) - used
    if left <= 0:
        raise ConfigError(
            f"infra.max_usd={total_usd:g} is spent: the runs have cost {_text(used)}, and "
            f"{len(unfinished):,} of them are not finished. Set it above {_text(used + least)}."
        )
    if left < least * len(unfinished):
        enough = used + least * len(unfinished) + 1
        raise ConfigError(
            f"infra.max_usd={total_usd:g} is too small: {_text(left)} are left for "
            f"{len(unfinished):,} runs, and a run needs {_text(least)} to get anywhere. Set it to "
            f"at least {_text(enough)}, or train fewer runs."
        )
    part = left // len(unfinished)
    return {key: (part + known.get(key, 0)) / _MICRO for key in unfinished}


def least_share(usd_per_hour: float) -> float:
    """Return the smallest share of any use, at the highest price of a run's machine [$]."""
    return usd_per_hour * LEAST_S / 3600.0


def _micro(usd: float, rounded: Callable[[float], int]) -> int:
    # Of a record that says nonsense, nothing is believed.
    return rounded(usd * _MICRO) if math.isfinite(usd) and usd > 0 else 0


def _text(micro: int) -> str:
    """Return an amount for people: cents, and more digits of what is less than a dollar."""
    usd = micro / _MICRO
    return f"${usd:,.2f}" if usd == 0 or usd >= 1 else f"${usd:,.4f}"

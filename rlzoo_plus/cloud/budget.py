"""Deals a budget out to the runs of a sweep, so that they keep it without anybody watching."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from rlzoo_plus.errors import ConfigError

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


def usd_text(usd: float) -> str:
    """Return an amount for people: cents, and more digits of what is less than a dollar."""
    return f"${usd:,.2f}" if usd == 0 or usd >= 1 else f"${usd:,.4f}"


def _micro(usd: float, rounded: Callable[[float], int]) -> int:
    # Of a record that says nonsense, nothing is believed.
    return rounded(usd * _MICRO) if math.isfinite(usd) and usd > 0 else 0


def _text(micro: int) -> str:
    return usd_text(micro / _MICRO)

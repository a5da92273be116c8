"""The interquartile mean over seeds with its interval: the same rules in every table and plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlzoo_plus.analysis.statistics import iqm, iqm_interval

# With fewer there is no interval: a percentile bootstrap of three or four values is their range.
ENOUGH_SEEDS = 5


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean over seeds."""

    iqm: float  # The mean
    low: float | None  # Lower end of its 95 % bootstrap interval, None below five seeds
    high: float | None  # Upper end of that interval
    lowest: float  # Of the seeds
    highest: float  # Of the seeds
    n: int  # Number of seeds


def estimate(values: Sequence[float | None]) -> Estimate | None:
    """Return the interquartile mean of one value a seed; None if no seed has one."""
    # Sorted, so that the resamples do not depend on the order of the runs.
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    low, high = iqm_interval(known) if len(known) >= ENOUGH_SEEDS else (None, None)
    return Estimate(iqm(known), low, high, min(known), max(known), len(known))


def shown(estimate: Estimate | None, *, with_n: bool = True) -> str:
    """Return an estimate as text: `180.2 [171.0, 188.4]`, or `180.2 (n=4)` without an interval.

    Without `with_n`, the number of seeds is left out, as where a column has it.
    """
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.iqm:.4g}" + (f" (n={estimate.n})" if with_n else "")
    return f"{estimate.iqm:.4g} [{estimate.low:.4g}, {estimate.high:.4g}]"


def few_seeds_text(counts: Sequence[int]) -> str | None:
    """Return a warning if one of these numbers of seeds is too small, None if none is."""
    few = [count for count in counts if count < ENOUGH_SEEDS]
    if not few:
        return None
    which = "All rows" if len(few) == len(counts) else f"{len(few)} of {len(counts)} rows"
    return (
        f"{which} have fewer than {ENOUGH_SEEDS} seeds: no interval is given. Report at least "
        f"{ENOUGH_SEEDS} seeds, 10 for a claim."
    )

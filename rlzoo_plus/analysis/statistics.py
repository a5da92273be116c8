"""The statistics behind evaluations and learning curves: robust means, intervals, smoothing.

The interquartile mean and the stratified bootstrap follow Agarwal et al. (2021), "Deep
Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Statistic = Callable[[np.ndarray], Any]
# Of a 95 % interval, on each side.
_TAIL = (1.0 - 0.95) / 2.0


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean: the mean without the lowest and the highest quarter.

    A quarter is rounded down to whole values, so that three values or fewer are all kept.

    Raises:
        ValueError: There are no values.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    if ordered.size == 0:
        raise ValueError("iqm of no values: it needs at least one")
    if np.isnan(ordered[-1]):
        return float("nan")
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def stratified_bootstrap_ci(
    samples_by_group: Sequence[ArrayLike], statistic: Statistic, n_resamples: int = 2000
) -> tuple[Any, Any]:
    """Return a 95 % percentile bootstrap interval; each group is resampled within itself.

    Args:
        samples_by_group: Samples of each group (task), shape (n_group, ...); only the sizes of
            groups may differ.
        statistic: Maps the samples of all groups, shape (sum of n_group, ...), to a number or an
            array; `iqm`, or `lambda samples: samples.mean(axis=0)` for curves.
        n_resamples: Number of resamples.

    Returns:
        The lower and the upper end, floats or arrays as `statistic` returns them.

    Raises:
        ValueError: A group is empty.
    """
    groups = [np.asarray(group, dtype=np.float64) for group in samples_by_group]
    if not groups or any(group.ndim == 0 or len(group) == 0 for group in groups):
        raise ValueError("the bootstrap needs at least one group, and a sample in each")
    generator = np.random.default_rng(0)
    results = []
    for _ in range(n_resamples):
        drawn = [group[generator.integers(len(group), size=len(group))] for group in groups]
        results.append(statistic(np.concatenate(drawn)))
    low, high = np.quantile(np.asarray(results), [_TAIL, 1.0 - _TAIL], axis=0)
    return (float(low), float(high)) if np.ndim(low) == 0 else (low, high)


def iqm_interval(values: ArrayLike, n_resamples: int = 2000) -> tuple[float, float]:
    """Return what `stratified_bootstrap_ci([values], iqm)` returns, hundreds of times as fast.

    Raises:
        ValueError: There are no values.
    """
    samples = np.asarray(values, dtype=np.float64)
    if not len(samples):
        raise ValueError("the interval of no values: it needs at least one")
    size, cut = len(samples), len(samples) // 4
    generator = np.random.default_rng(0)
    results = np.empty(n_resamples)
    # Many values would not fit into memory for all resamples at once.
    step = max(1, 1_000_000 // size)
    for first in range(0, n_resamples, step):
        count = min(step, n_resamples - first)
        drawn = np.sort(samples[generator.integers(size, size=(count, size))], axis=1)
        means = drawn[:, cut : size - cut].mean(axis=1)
        # NaN is sorted to the end.
        results[first : first + count] = np.where(np.isnan(drawn[:, -1]), np.nan, means)
    low, high = np.quantile(results, [0.025, 0.975])
    return float(low), float(high)


def performance_profile(values: ArrayLike, thresholds: ArrayLike) -> np.ndarray:
    """Return the share of values above each threshold, shape (n_thresholds,)."""
    samples = np.asarray(values, dtype=np.float64).ravel()
    return np.asarray((samples > np.asarray(thresholds, dtype=np.float64)[..., None]).mean(axis=-1))


def probability_of_improvement(better: Sequence[ArrayLike], worse: Sequence[ArrayLike]) -> float:
    """Return how probable it is that a run of one algorithm scores higher than one of another.

    It is the mean over tasks of the Mann-Whitney U statistic over its largest value: of all pairs,
    the share in which the first one is higher; equal ones count half.

    Args:
        better: Scores of one algorithm's runs, for each task.
        worse: Scores of the other one's runs, for the same tasks in the same order.
    """
    shares = []
    for first, second in zip(better, worse, strict=True):
        difference = np.subtract.outer(np.asarray(first, float), np.asarray(second, float))
        shares.append((difference > 0).mean() + 0.5 * (difference == 0).mean())
    return float(np.mean(shares))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Return p-values corrected for several tests by the method of Holm (1979), shape (n,).

    The probability of any false decision is at most the level that they are compared with.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def smooth(values: ArrayLike, window: int) -> np.ndarray:
    """Return the centred moving average of shape (n,); at both ends the window shrinks.

    An even `window` reaches one value further back than ahead.

    Raises:
        ValueError: The window is below 1, or the values are not one-dimensional.
    """
    series = np.asarray(values, dtype=np.float64)
    if window < 1:
        raise ValueError(f"window={window} is below 1; 1 leaves the values as they are")
    if series.ndim != 1:
        raise ValueError(f"values have shape {series.shape}; give one dimension")
    if series.size == 0:
        return series.copy()
    # A window of twice the length already sees everything from everywhere.
    width = min(window, 2 * series.size)
    ahead, ones = (width - 1) // 2, np.ones(width)
    inside = slice(ahead, ahead + series.size)
    counts = np.convolve(np.ones(series.size), ones)[inside]
    return np.asarray(np.convolve(series, ones)[inside] / counts)

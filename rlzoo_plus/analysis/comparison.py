"""Whether one set of runs scores higher than another: difference, interval, test, power.

With the few runs of reinforcement learning, a percentile bootstrap is too narrow (Colas et al.,
2019, "A Hitchhiker's Guide to Statistical Comparisons of Reinforcement Learning Algorithms"). The
test is a permutation test, exact at any number of runs if the sets have one distribution. Its
statistic is the difference of interquartile means over a standard error, so that sets of other
spread mislead it little (Janssen, 1997; Chung and Romano, 2013). The interval is the differences
that the test does not reject (Garthwaite, 1996), so the two never contradict each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike

from rlzoo_plus.analysis.statistics import iqm, probability_of_improvement

LEVEL = 0.05
# The power that the number of seeds that is said to be needed would give.
POWER = 0.8
# All ways to divide the runs are tried if they are at most so many, else as many at random.
_MOST_DIVISIONS = 2000
_MOST_SEEDS = 200
# Pairs of sets that are drawn, second sets that each first one is compared with, and how many
# statistics are computed where all divisions of a pair are tried.
_SIMULATED, _PAIRINGS, _MOST_STATISTICS = 4000, 16, 1_000_000
# Numbers of seeds for which the power is computed: all small ones, then steps of 5 %.
_SIZES: list[int] = sorted({*range(2, 21), *np.geomspace(20, _MOST_SEEDS, 48).astype(int).tolist()})


@dataclass(frozen=True)
class Comparison:
    """What runs show about one set against another; None where they are too few to tell."""

    difference: float  # Of the interquartile means, first less second
    low: float | None  # Lower end of its 95 % interval
    high: float | None  # Upper end of that interval
    probability: float  # That a run of the first set scores higher than one of the second
    p_value: float | None  # Of the test that the sets do not differ, two-sided, not corrected
    smallest_p: float  # The smallest p-value that so many runs can give
    n_first: int  # Runs in the first set
    n_second: int  # Runs in the second set


def compare(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> Comparison:
    """Compare two sets of runs.

    Args:
        first: Scores of the first set's runs, for each task.
        second: Scores of the second set's runs, for the same tasks in the same order. Scores of
            several tasks need one scale.

    Raises:
        ValueError: A task has no run.
    """
    pairs = _arrays(first, second)
    test = _Test(pairs)
    low, high = test.interval() if test.can_reject else (None, None)
    return Comparison(
        difference=iqm(np.concatenate([a for a, _ in pairs]))
        - iqm(np.concatenate([b for _, b in pairs])),
        low=low,
        high=high,
        probability=probability_of_improvement([a for a, _ in pairs], [b for _, b in pairs]),
        p_value=test.p_value() if test.is_possible else None,
        smallest_p=test.smallest_p,
        n_first=sum(len(a) for a, _ in pairs),
        n_second=sum(len(b) for _, b in pairs),
    )


def p_value(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> float | None:
    """Return the p-value of `compare`, without the rest of it."""
    test = _Test(_arrays(first, second))
    return test.p_value() if test.is_possible else None


class _Test:
    """The permutation test of two sets of runs; runs change sides within their task only."""

    def __init__(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
        pairs, self._is_swapped = _ordered(pairs)
        sizes = [(len(a), len(b)) for a, b in pairs]
        # For each task, the first set's runs and then the second's.
        self._values = np.concatenate([np.concatenate(pair) for pair in pairs])
        self._is_first = np.concatenate([np.arange(a + b) < a for a, b in sizes])
        self.is_possible = min(self._is_first.sum(), (~self._is_first).sum()) >= 2
        if self.is_possible:
            self._first, self._second = _divisions(sizes)

    @property
    def smallest_p(self) -> float:
        """The p-value if no division of the runs but the true one and its mirror differ as much."""
        return min(2 / len(self._first), 1.0) if self.is_possible else 1.0

    @property
    def can_reject(self) -> bool:
        """Whether there are enough runs for any result to be significant."""
        return self.smallest_p <= LEVEL

    def p_value(self, shift: float = 0.0) -> float:
        """Return how often sides by chance differ as much.

        The set that comes first in the order of this test is taken to be higher by `shift`.
        """
        values = self._values - shift * self._is_first
        return float(_p_values(values, self._first, self._second))

    def interval(self) -> tuple[float, float]:
        """Return the smallest and the largest difference that is not rejected."""
        centre = iqm(self._values[self._is_first]) - iqm(self._values[~self._is_first])
        reach = float(np.ptp(self._values)) or 1.0
        low, high = self._end(centre, -reach), self._end(centre, reach)
        return (-high, -low) if self._is_swapped else (low, high)

    def _end(self, centre: float, step: float) -> float:
        inside, outside = centre, centre + step
        while self.p_value(outside) > LEVEL:
            inside, outside = outside, outside + 2 * (outside - centre)
            if abs(outside - centre) > 1e6 * abs(step):
                return math.copysign(math.inf, step)
        for _ in range(20):
            middle = (inside + outside) / 2
            if self.p_value(middle) > LEVEL:
                inside = middle
            else:
                outside = middle
        return inside


def _p_values(values: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the p-value of each pair of sets, shape (...,).

    The runs of both sets have shape (..., n_first + n_second); for the indices see `_divisions`.
    """
    found = np.abs(_ratio(_moments(values[..., first]), _moments(values[..., second])))
    # The division as it is comes first. Sums in another order differ in the last digits.
    return np.asarray((found >= found[..., :1] * (1 - 1e-9)).mean(axis=-1))


def _moments(samples: np.ndarray) -> np.ndarray:
    """Return interquartile mean and squared error of the mean of sets, shape (2, ...)."""
    size = samples.shape[-1]
    cut = size // 4
    middle = np.sort(samples, axis=-1)[..., cut : size - cut].mean(axis=-1)
    return np.stack([middle, samples.var(axis=-1, ddof=1) / size])


def _ratio(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the difference of interquartile means over its error, from the `_moments` of sets.

    The error is that of a difference of means (Welch, 1947): of five runs, the spread of the middle
    three alone says too little.
    """
    difference, squared = first[0] - second[0], first[1] + second[1]
    # Equal runs have no spread: any difference is infinitely large, none is none.
    error = np.maximum(np.sqrt(squared), 1e-12 * (1 + np.abs(difference)))
    return np.asarray(np.where(np.abs(difference) <= 1e-12, 0.0, difference) / error)


def seeds_needed(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], level: float = LEVEL
) -> int | None:
    """Return how many seeds a set would probably show the difference that these have.

    Pairs of sets are drawn from normal distributions with the interquartile means and standard
    deviations of these runs; significant is a p-value of at most `level`. None if more than
    `_MOST_SEEDS` are needed, or these are too few to say.
    """
    pairs = _arrays(first, second)
    if min(len(side) for pair in pairs for side in pair) < 3:
        return None
    draws = SimulatedPairs(pairs, level)
    if draws.power(_MOST_SEEDS) < POWER:
        return None
    return _SIZES[bisect_left(_SIZES, POWER, key=draws.power)]


class SimulatedPairs:
    """Pairs of sets drawn from normal distributions; a pair of more runs holds those of fewer."""

    def __init__(self, pairs: list[tuple[np.ndarray, np.ndarray]], level: float) -> None:
        self._level = level
        generator = np.random.default_rng(0)
        shape = (_MOST_SEEDS, _SIMULATED)
        # For each task, both means, and the runs around them.
        self._tasks = [
            [(iqm(side), side.std(ddof=1) * generator.standard_normal(shape)) for side in pair]
            for pair in _ordered(pairs)[0]
        ]

    def power(self, n: int) -> float:
        """Return the share of pairs that differ significantly with `n` runs a set and task."""
        count = min(math.comb(2 * n, n) ** len(self._tasks), _MOST_DIVISIONS)
        # A division and its mirror differ alike.
        n_beyond = 2 * math.floor(self._level * count / 2 + 1e-9)
        if not n_beyond:
            return 0.0
        sides = [[mean + runs[:n] for mean, runs in task] for task in self._tasks]
        if count < _MOST_DIVISIONS:
            values = np.concatenate([side for task in sides for side in task]).T
            divisions = _divisions([(n, n)] * len(sides))
            # All at once would not fit into the cache.
            parts = np.array_split(values[: _MOST_STATISTICS // count], 100)
            found = [_p_values(part, *divisions) for part in parts]
            return float((np.concatenate(found) <= self._level).mean())
        first, second = (np.concatenate(side).T for side in zip(*sides, strict=True))
        lower = np.concatenate([np.full(n, task[0][0] - task[1][0]) for task in self._tasks])
        # Each first set against several second ones.
        rows = np.arange(_SIMULATED)[:, None] + np.arange(_PAIRINGS)
        against = _moments(second)[:, rows % _SIMULATED]
        plain, moved = (
            np.abs(_ratio(_moments(sets)[..., None], against)) for sets in (first - lower, first)
        )
        # Of so many divisions, about as many differ as much as of pairs without a difference.
        return float((moved > np.quantile(plain, 1 - n_beyond / count)).mean())


def _arrays(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike]
) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = [
        (np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
        for a, b in zip(first, second, strict=True)
    ]
    if not pairs or any(len(side) == 0 for pair in pairs for side in pair):
        raise ValueError("a comparison needs at least one run of both sets for each task")
    return pairs


def _ordered(
    pairs: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[list[tuple[np.ndarray, np.ndarray]], bool]:
    """Return the sets in an order that depends on their scores alone, and whether that swaps them.

    So random draws are the same whichever set is named first.
    """
    first, second = ([side.tolist() for side in sides] for sides in zip(*pairs, strict=True))
    is_swapped = first < second
    return ([(b, a) for a, b in pairs] if is_swapped else pairs), is_swapped


def _divisions(sizes: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of both sides, shape (n_divisions, n_side); the true one comes first."""
    starts = np.cumsum([0, *(a + b for a, b in sizes)])
    total = math.prod(math.comb(a + b, a) for a, b in sizes)
    if total <= _MOST_DIVISIONS:
        # The first combination is the true one.
        by_task = [
            [[start + i for i in chosen] for chosen in combinations(range(a + b), a)]
            for start, (a, b) in zip(starts, sizes, strict=False)
        ]
        first = np.array([np.concatenate(parts) for parts in product(*by_task)])
    else:
        generator, parts = np.random.default_rng(0), []
        for start, (a, b) in zip(starts, sizes, strict=False):
            order = generator.random((_MOST_DIVISIONS, a + b)).argsort(axis=1)[:, :a]
            order[0] = np.arange(a)
            parts.append(start + order)
        first = np.concatenate(parts, axis=1)
    is_first = np.zeros((len(first), starts[-1]), dtype=bool)
    np.put_along_axis(is_first, first, True, axis=1)
    return first, np.nonzero(~is_first)[1].reshape(len(first), -1)

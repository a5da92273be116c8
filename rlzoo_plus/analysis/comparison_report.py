"""The comparison of sides with each other: a row a pair, its decision, and the answer of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

from rlzoo_plus.analysis.comparison import LEVEL, Comparison, compare, p_value, seeds_needed
from rlzoo_plus.analysis.estimates import ENOUGH_SEEDS
from rlzoo_plus.analysis.scores import Scale, Side, Which, check_comparable, scale_of
from rlzoo_plus.analysis.series import EVALUATION_RETURN
from rlzoo_plus.analysis.statistics import holm, iqm
from rlzoo_plus.errors import ConfigError

Gate = Literal["not-worse", "better"]
YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"
# What `not-worse` allows without a margin of the user's, on the normalised scale.
USUAL_MARGIN = 0.05
ALL = "all"


@dataclass(frozen=True)
class Row:
    """Two sides on one environment, in returns; or on all of them, on the normalised scale."""

    env: str  # The environment, or `ALL`
    first: float  # Interquartile mean of the first side
    second: float  # Interquartile mean of the second side
    comparison: Comparison


@dataclass(frozen=True)
class Pair:
    """Two sides."""

    first: str  # Name of the first side
    second: str  # Name of the second side
    rows: tuple[Row, ...]  # One for each environment; of several, the last one is over all
    normalised: Comparison  # The last row on the normalised scale
    p_holm: float | None  # Its p-value, corrected for the number of pairs; None with too few runs
    # About how many more seeds a side and environment would be needed, 0 if it is decided, None if
    # more than 200 or not known
    more_seeds: int | None

    @property
    def decision(self) -> str:
        """Which side is higher, or that it is not decided."""
        if self.p_holm is None or self.p_holm > LEVEL:
            return "not decided"
        return f"{self.first if self.normalised.difference > 0 else self.second} is higher"


@dataclass(frozen=True)
class Report:
    """All pairs of some sides."""

    pairs: tuple[Pair, ...]
    scales: dict[str, Scale]

    @property
    def warnings(self) -> list[str]:
        """What to keep in mind."""
        told = []
        sizes = [
            n
            for pair in self.pairs
            for row in pair.rows
            if row.env != ALL
            for n in (row.comparison.n_first, row.comparison.n_second)
        ]
        if min(sizes, default=ENOUGH_SEEDS) < ENOUGH_SEEDS:
            told.append(
                f"fewer than {ENOUGH_SEEDS} seeds a side: take this as a rough guide. With fewer "
                "than 4 nothing can be decided, and no interval is given."
            )
        smallest = max((pair.normalised.smallest_p for pair in self.pairs), default=0.0)
        if smallest <= LEVEL < smallest * len(self.pairs):
            told.append(
                f"with {len(self.pairs)} pairs and so few seeds a single pair can hardly be "
                "decided: Holm's correction needs smaller p-values than so few runs give. Compare "
                "fewer sides, or run more seeds."
            )
        return told

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "scales": {env: asdict(scale) for env, scale in self.scales.items()},
            "pairs": [{**asdict(pair), "decision": pair.decision} for pair in self.pairs],
            "warnings": self.warnings,
        }


def compare_sides(
    sides: Sequence[Side], which: Which = "final", metric: str = EVALUATION_RETURN
) -> Report:
    """Compare each side with each other; runs are `measured_by` the metric."""
    check_comparable(sides, metric)
    envs = list(sides[0].runs)
    scales = {env: scale_of(env, sides, metric) for env in envs}
    found = []
    for first, second in combinations(sides, 2):
        rows = []
        for env in envs:
            scores = first.scores(env, which), second.scores(env, which)
            found_here = compare([scores[0]], [scores[1]])
            rows.append(Row(env, iqm(scores[0]), iqm(scores[1]), found_here))
        scaled = [
            [scales[env](side.scores(env, which)) for env in envs] for side in (first, second)
        ]
        normalised = compare(*scaled)
        if len(envs) > 1:
            means = [iqm([score for scores in side for score in scores]) for side in scaled]
            rows.append(Row(ALL, means[0], means[1], normalised))
        found.append((first.name, second.name, tuple(rows), normalised, scaled))
    corrected = _corrected([normalised.p_value for *_, normalised, _ in found])
    pairs = []
    for (first_name, second_name, rows_of, normalised, scaled), p_holm in zip(
        found, corrected, strict=True
    ):
        is_decided = p_holm is not None and p_holm <= LEVEL
        # Holm's correction asks no pair for less than a share of the level.
        more = 0 if is_decided else _more_seeds(scaled, LEVEL / len(found))
        pairs.append(Pair(first_name, second_name, rows_of, normalised, p_holm, more))
    return Report(tuple(pairs), scales)


def decided_best(sides: Sequence[Side], env: str) -> str | None:
    """Return the name of the side that is decided to be higher than each other one.

    The final scores on one environment count. None if there is no such side, or if they were not
    measured alike.
    """
    there = [Side(side.name, {env: side.runs[env]}) for side in sides if env in side.runs]
    scores = {side.name: found for side in there if (found := side.scores(env, "final"))}
    pairs = list(combinations(scores, 2))
    try:
        check_comparable(there)
    except ConfigError:
        return None
    corrected = _corrected([p_value([scores[a]], [scores[b]]) for a, b in pairs])
    best = max(scores, key=lambda name: iqm(scores[name]), default=None)
    against = [p for pair, p in zip(pairs, corrected, strict=True) if best in pair]
    is_decided = bool(against) and all(p is not None and p <= LEVEL for p in against)
    return best if is_decided else None


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for their number; those of pairs with too few runs are None."""
    corrected = iter(holm([p for p in p_values if p is not None]).tolist())
    return [None if p is None else next(corrected) for p in p_values]


def _more_seeds(scaled: list[list[list[float]]], level: float) -> int | None:
    needed = seeds_needed(scaled[0], scaled[1], level)
    if needed is None:
        return None
    fewest = min(len(scores) for side in scaled for scores in side)
    # They may be enough and still have missed it.
    return max(needed - fewest, 1)


def answer(comparison: Comparison, gate: Gate, margin: float) -> str:
    """Return whether the first side is better, or not worse, by a margin: `YES`, `NO`, or neither.

    The margin is on the normalised scale. Either answer is wrong with a probability of at most
    2.5 %.
    """
    if comparison.low is None or comparison.high is None:
        return CANNOT_TELL
    limit = margin if gate == "better" else -margin
    if comparison.low > limit or (gate == "not-worse" and comparison.low >= limit):
        return YES
    if comparison.high < limit or (gate == "better" and comparison.high <= limit):
        return NO
    return CANNOT_TELL

"""Curves of many runs, put together by what they share, with a mean and a band over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlzoo_plus.analysis.runs import identity
from rlzoo_plus.analysis.series import Series, load_series
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.statistics import stratified_bootstrap_ci

# What runs of one group have in common; None is the default.
SHARED: dict[str | None, tuple[str, ...]] = {
    None: ("algo", "env"),
    "seed": ("algo", "env", "seed"),
    "algo": ("algo",),
    "env": ("env",),
}
_MOST_POINTS = 300
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Curve:
    """One run's values over its steps, and what the run is."""

    algo: str
    env: str
    seed: int | None
    solved_return: float | None
    series: Series

    @property
    def title(self) -> str:
        """The run as text."""
        return f"{self.algo} on {self.env} (seed {'?' if self.seed is None else self.seed})"


@dataclass(frozen=True)
class Band:
    """A mean over runs and its interval.

    Attributes:
        steps: Environment steps, shape (n,).
        mean: Mean over runs, shape (n,).
        low: Lower end of the interval, shape (n,).
        high: Upper end of the interval, shape (n,).
        n_runs: Runs that the mean is over.
    """

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_runs: int


@dataclass(frozen=True)
class Group:
    """Curves that are drawn in one colour."""

    label: str
    curves: tuple[Curve, ...]

    @property
    def n_seeds(self) -> int:
        """Number of different seeds: the same seed twice is no new evidence."""
        return len({curve.seed for curve in self.curves})

    @property
    def size(self) -> str:
        """The number of runs and seeds, as text."""
        seeds = f"{self.n_seeds} seed{'s' if self.n_seeds > 1 else ''}"
        n_runs = len(self.curves)
        return seeds if n_runs == self.n_seeds else f"{n_runs} runs, {seeds}"


def load_curve(run: RunDir, key: str) -> Curve:
    """Return a metric of a run as a curve; it has no points where the run has no such metric."""
    known = identity(run)
    algo, env = known["algo"] or "unknown", known["env"] or run.path.name
    # A pair of dollar signs would be a formula.
    algo, env = (printable(name, _LONGEST_NAME).replace("$", r"\$") for name in (algo, env))
    return Curve(algo, env, known["seed"], known["solved_return"], load_series(run, key))


def group_curves(curves: Iterable[Curve], by: str | None = None) -> list[Group]:
    """Put curves together.

    Args:
        curves: Curves in any order.
        by: `seed` keeps every seed apart, `algo` and `env` look at nothing else; None puts the
            seeds of an algorithm on an environment together.

    Raises:
        ConfigError: `by` is none of these.
    """
    if by not in SHARED:
        raise ConfigError(unknown_name("grouping", str(by), [name for name in SHARED if name]))
    found: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        key = tuple(str(getattr(curve, name)) for name in SHARED[by])
        found.setdefault(key, []).append(curve)
    members = [found[key] for key in sorted(found, key=_in_order)]
    return [Group(_label(group, members, by), tuple(group)) for group in members]


def mean_band(curves: Sequence[Curve]) -> Band:
    """Return mean and 95 % bootstrap interval where all runs have values.

    Runs that got less than half as far as the farthest are left out: they would end the mean.
    Between two values of a run, the line between them counts.

    Args:
        curves: Curves with at least one point each.
    """
    farthest = max(curve.series.steps[-1] for curve in curves)
    kept = [curve for curve in curves if curve.series.steps[-1] >= farthest / 2]
    steps = _common_steps([curve.series for curve in kept])
    strata: dict[tuple[str, str], list[np.ndarray]] = {}
    for curve in kept:
        values = np.interp(steps, curve.series.steps, curve.series.values)
        strata.setdefault((curve.algo, curve.env), []).append(values)
    samples = [np.stack(rows) for rows in strata.values()]
    low, high = stratified_bootstrap_ci(samples, lambda drawn: drawn.mean(axis=0))
    return Band(steps, np.concatenate(samples).mean(axis=0), low, high, len(kept))


def shared_value(curves: Iterable[Curve], name: str) -> object:
    """Return what all curves have as an attribute, or None where they differ."""
    values = {getattr(curve, name) for curve in curves}
    return values.pop() if len(values) == 1 else None


def _common_steps(all_series: list[Series]) -> np.ndarray:
    first = max(series.steps[0] for series in all_series)
    last = min(series.steps[-1] for series in all_series)
    steps = np.unique(np.concatenate([series.steps for series in all_series]))
    inside = steps[(steps >= first) & (steps <= last)]
    # One run may begin where another one has ended.
    steps = inside if len(inside) else np.array([last])
    return steps if len(steps) <= _MOST_POINTS else np.linspace(first, last, _MOST_POINTS)


def _label(group: list[Curve], groups: list[list[Curve]], by: str | None) -> str:
    """Name a group by what sets it apart from the others."""
    everything = [curve for curves in groups for curve in curves]
    one = group[0]
    if by == "seed":
        is_shared = shared_value(everything, "algo") and shared_value(everything, "env")
        return f"seed {one.seed}" if is_shared else one.title
    if by is not None:
        return str(getattr(one, by))
    if shared_value(everything, "env"):
        return one.algo
    return one.env if shared_value(everything, "algo") else f"{one.algo} on {one.env}"


def _in_order(key: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    # Seed 10 comes after seed 9.
    return tuple((len(part) if part.isdigit() else 0, part) for part in key)

"""Learning curves: of one run with all its detail, of many as interquartile means over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.analysis.clocks import AXIS_LABELS, Axis, positions
from rlzoo_plus.analysis.estimates import ENOUGH_SEEDS
from rlzoo_plus.analysis.index import RunEntry, read_run
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.analysis.series import (
    EVALUATION_RETURN,
    STAGE,
    TRAINING_RETURN,
    Series,
    load_evaluations,
    load_series,
)
from rlzoo_plus.analysis.statistics import smooth, stratified_bootstrap_ci
from rlzoo_plus.analysis.style import (
    GREY,
    INK,
    PALETTE,
    SCREEN,
    Style,
    escaped,
    finish,
    line_look,
    new_axes,
    new_grid,
    save_plot,
    sparse_marks,
)
from rlzoo_plus.analysis.variants import settings_labels
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    EVALUATION_RETURN: "evaluation return",
    "iqm_return": "evaluation return (interquartile mean)",
    "success_rate": "success rate",
}
# What runs of one group have in common; None is the default.
SHARED: dict[str | None, tuple[str, ...]] = {
    None: ("algo", "env", "settings"),
    "seed": ("algo", "env", "settings", "seed"),
    "algo": ("algo",),
    "env": ("env",),
}
# With this many points a curve is smoothed, with half of them it has no markers.
_DENSE = 100
_MOST_POINTS = 300
# With more lines, those of single runs would hide them.
_MOST_WITH_RUNS = 6
_WEIGHT = 2.4


@dataclass(frozen=True)
class Curve:
    """One run's values over its steps, and what the run is."""

    algo: str
    env: str
    seed: int | None
    solved_return: float | None
    series: Series
    settings: str = ""  # What sets its variant apart from others of its algorithm

    @property
    def variant(self) -> str:
        """Algorithm and settings."""
        return f"{self.algo} {self.settings}".rstrip()

    @property
    def title(self) -> str:
        """The run as text."""
        return f"{self.variant} on {self.env} (seed {'?' if self.seed is None else self.seed})"

    @property
    def is_dense(self) -> bool:
        """Whether the curve is smoothed: more points on top of each other are only noise."""
        return len(self.series) >= _DENSE

    @property
    def window(self) -> int:
        """Number of neighbours to smooth over."""
        return len(self.series) // 40 * 2 + 1

    @property
    def marker(self) -> str:
        """Marker of each point, empty where there are many."""
        return "o" if len(self.series) < _DENSE // 2 else ""


@dataclass(frozen=True)
class Band:
    """An interquartile mean over runs and its interval."""

    steps: np.ndarray  # Environment steps, episodes or hours, shape (n,)
    iqm: np.ndarray  # Interquartile mean over runs, shape (n,)
    low: np.ndarray  # Lower end of the 95 % interval, shape (n,); NaN below five runs
    high: np.ndarray  # Upper end of that interval, shape (n,)
    n_runs: int  # Runs that the mean is over


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
        seeds = counted(self.n_seeds, "seed")
        n_runs = len(self.curves)
        return seeds if n_runs == self.n_seeds else f"{n_runs} runs, {seeds}"


def load_curves(
    runs: Sequence[RunEntry],
    key: str,
    axis: Axis = "steps",
    among: Sequence[RunEntry] | None = None,
) -> list[Curve]:
    """Return a metric of each run as a curve; it has no points where the run has no such metric.

    A curve's settings set its variant apart from those `among` which it is shown.
    """
    labels = settings_labels({run.variant: run.values for run in (*runs, *(among or ()))})
    curves = []
    for run in runs:
        if key == EVALUATION_RETURN:
            steps = np.array([each.step for each in run.evaluations], dtype=np.float64)
            series = Series(steps, np.array([each.mean_return for each in run.evaluations]))
        else:
            series = load_series(run.run, key)
        if axis != "steps" and len(series):
            moved = positions(run.run, series.steps, axis)
            known = np.isfinite(moved)
            series = Series(moved[known], series.values[known])
        algo, env, settings = map(escaped, (run.algo, run.env, labels[run.variant]))
        curves.append(Curve(algo, env, run.summary.seed, run.solved_return, series, settings))
    return curves


def group_curves(curves: Iterable[Curve], by: str | None = None) -> list[Group]:
    """Group curves by variant (None), by `algo`, by `env`, or keep every `seed` apart."""
    if by not in SHARED:
        raise ConfigError(unknown_name("grouping", str(by), [name for name in SHARED if name]))
    everything, found = list(curves), dict[tuple[str, ...], list[Curve]]()
    for curve in everything:
        key = tuple(str(getattr(curve, name)) for name in SHARED[by])
        found.setdefault(key, []).append(curve)
    has_algo, has_env = (bool(_shared(everything, name)) for name in ("variant", "env"))

    def label(one: Curve) -> str:
        """Name a group by what sets it apart from the others."""
        if by == "seed":
            named = ("" if has_algo else one.variant, "" if has_env else f"on {one.env}")
            return ", ".join(filter(None, (" ".join(filter(None, named)), f"seed {one.seed}")))
        if by is not None:
            return str(getattr(one, by))
        if has_env:
            return one.variant
        return one.env if has_algo else f"{one.variant} on {one.env}"

    # Seed 10 comes after seed 9.
    in_order = sorted(found, key=lambda key: [(len(p) if p.isdigit() else 0, p) for p in key])
    return [Group(label(found[key][0]), tuple(found[key])) for key in in_order]


def iqm_band(curves: Sequence[Curve]) -> Band:
    """Return interquartile mean and 95 % bootstrap interval where all runs have values.

    Runs that got less than half as far as the farthest are left out: they would end the mean.
    Values between two points of a run are interpolated. Each curve has at least one point.
    """
    farthest = max(curve.series.steps[-1] for curve in curves)
    kept = [curve for curve in curves if curve.series.steps[-1] >= farthest / 2]
    first = max(curve.series.steps[0] for curve in kept)
    last = min(curve.series.steps[-1] for curve in kept)
    steps = np.unique(np.concatenate([curve.series.steps for curve in kept]))
    steps = steps[(steps >= first) & (steps <= last)]
    if not len(steps):
        # One run may begin where another one has ended.
        steps = np.array([last])
    elif len(steps) > _MOST_POINTS:
        steps = np.linspace(first, last, _MOST_POINTS)
    strata: dict[tuple[str, str], list[np.ndarray]] = {}
    for curve in kept:
        values = np.interp(steps, curve.series.steps, curve.series.values)
        strata.setdefault((curve.algo, curve.env), []).append(values)
    samples = [np.stack(rows) for rows in strata.values()]
    low = high = np.full(len(steps), np.nan)
    if len(kept) >= ENOUGH_SEEDS:
        low, high = stratified_bootstrap_ci(samples, _middle_mean)
    return Band(steps, _middle_mean(np.concatenate(samples)), low, high, len(kept))


def _middle_mean(samples: np.ndarray) -> np.ndarray:
    cut = len(samples) // 4
    return np.asarray(np.sort(samples, axis=0)[cut : len(samples) - cut].mean(axis=0))


def _shared(curves: Iterable[Curve], name: str) -> Any:
    """Return the value that all curves have of an attribute, or None where they differ."""
    values = {getattr(curve, name) for curve in curves}
    return values.pop() if len(values) == 1 else None


def plot_learning_curve(
    runs: Sequence[RunDir], out: Path, metric: str = EVALUATION_RETURN, by: str | None = None
) -> Path:
    """Draw a metric over environment steps, see `plot_curves`."""
    return plot_curves([read_run(run) for run in dict.fromkeys(runs)], out, metric, by)


def plot_curves(
    runs: Sequence[RunEntry],
    out: Path,
    metric: str = EVALUATION_RETURN,
    by: str | None = None,
    *,
    axis: Axis = "steps",
    style: Style = SCREEN,
) -> Path:
    """Draw a metric over environment steps, episodes or hours, as PNG, SVG or PDF.

    One run is drawn with the spread of its episodes, its best evaluation and its training curve. Of
    many, each variant gets its interquartile mean over seeds with a 95 % bootstrap interval, and
    each environment its own axes. `metric` is a name that `load_series`
    knows; runs without it are left out. For `by` see `group_curves`.
    """
    return save_plot(curves_figure(runs, metric, by, axis, style=style), out)


def curves_figure(
    runs: Sequence[RunEntry],
    metric: str = EVALUATION_RETURN,
    by: str | None = None,
    axis: Axis = "steps",
    among: Sequence[RunEntry] | None = None,
    style: Style = SCREEN,
) -> Figure:
    """Return the figure of `plot_curves`; for `among` see `load_curves`."""
    loaded = zip(runs, load_curves(runs, metric, axis, among), strict=True)
    drawn = [(run, curve) for run, curve in loaded if len(curve.series)]
    if not drawn:
        named = ", ".join(str(run.summary.path) for run in runs) or "no run given"
        over = "" if axis == "steps" else f" over {axis}"
        raise ConfigError(f"{metric!r} has no values yet{over} ({named}). Let the run go on first.")
    if len(drawn) == 1 and axis == "steps":
        figure, panels = _figure_of_one(*drawn[0], metric, style)
    else:
        figure, panels = _figure_of_many([curve for _, curve in drawn], metric, by, axis, style)
    for axes in panels:
        # Plots of different runs are comparable if all begin at 0.
        left, right = axes.get_xlim()
        axes.set_xlim(min(left, -0.015 * right), right)
    _note_points(panels[0], [curve for _, curve in drawn])
    return finish(figure, style)


def _note_points(axes: Axes, curves: Sequence[Curve]) -> None:
    """Say in the legend which runs have a single point, which is no curve."""
    count = sum(len(curve.series) == 1 for curve in curves)
    if count:
        which = "a single point" if count == len(curves) == 1 else f"{count} of {len(curves)} runs"
        text = which if which.startswith("a ") else f"{which} have a single point"
        axes.plot([], [], linestyle="none", label=f"{text} so far: no curve yet")


def _figure_of_one(
    run: RunEntry, curve: Curve, metric: str, style: Style
) -> tuple[Figure, list[Axes]]:
    figure, axes = new_axes(curve.title, _LABELS.get(metric, metric), style=style)
    if metric == EVALUATION_RETURN:
        _draw_run(axes, run.run)
        _draw_solved(axes, curve.solved_return)
    else:
        _draw_metric(axes, curve)
    return figure, [axes]


def _figure_of_many(
    curves: list[Curve], metric: str, by: str | None, axis: Axis, style: Style
) -> tuple[Figure, list[Axes]]:
    variant, envs = _shared(curves, "variant"), list(dict.fromkeys(c.env for c in curves))
    # One that is asked to merge environments, or to compare them, needs a single one.
    titles = envs if by in (None, "seed") else [""]
    note = " (smoothed)" if any(curve.is_dense for curve in curves) else ""
    title = str(variant or _shared(curves, "algo") or "")
    if len(titles) == 1:
        env = _shared(curves, "env")
        title = f"{title} on {env}" if title and env else str(env or title)
        title = title or f"{len(curves)} runs"
    label = _LABELS.get(metric, metric)
    figure, panels = new_grid(title, titles, label + note, AXIS_LABELS[axis], style)
    smoothed = [_smoothed(curve) for curve in curves]
    groups = {
        env: group_curves([c for c in smoothed if len(titles) == 1 or c.env == env], by)
        for env in titles
    }
    # The same variant looks alike on all environments.
    names = dict.fromkeys(_line_name(g, by) for each in groups.values() for g in each)
    places = {name: number for number, name in enumerate(names)}
    for axes, env in zip(panels, titles, strict=True):
        here = [c for group in groups[env] for c in group.curves]
        solved = _shared(here, "solved_return") if metric == EVALUATION_RETURN else None
        _draw_groups(axes, groups[env], by, solved, places, is_grid=len(titles) > 1)
    return figure, panels


def _line_name(group: Group, by: str | None) -> str:
    first = group.curves[0]
    if by == "seed":
        return f"{first.variant}, seed {first.seed}"
    return first.variant if by is None else group.label


def _smoothed(curve: Curve) -> Curve:
    if not curve.is_dense:
        return curve
    values = smooth(curve.series.values, curve.window)
    return replace(curve, series=Series(curve.series.steps, values))


def _draw_run(axes: Axes, run: RunDir) -> None:
    evaluations, training = load_evaluations(run), load_series(run, TRAINING_RETURN)
    steps, means, stds = np.array([(e.step, e.mean_return, e.std_return) for e in evaluations]).T
    if len(training):
        look: dict[str, Any] = {"color": GREY, "linewidth": 1.1, "alpha": 0.75, "zorder": 1}
        axes.plot(training.steps, training.values, label="training episodes", **look)
    colour, label = PALETTE[0], "± 1 std of episodes"
    shade: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0}
    axes.fill_between(steps, means - stds, means + stds, label=label, **shade)
    if len(steps) == 1:
        axes.errorbar(steps, means, stds, color=colour, capsize=5, linewidth=_WEIGHT)
    look = {"color": colour, "linewidth": _WEIGHT, "markersize": 6.5, "markeredgecolor": "white"}
    axes.plot(steps, means, marker="o", label="evaluation mean", zorder=3, **look)
    _draw_stages(axes, load_series(run, STAGE))
    best = evaluations[int(np.argmax(means))]
    label = f"best: {best.mean_return:,.4g} at {best.step:,} steps"
    look = {"color": PALETTE[1], "linestyle": "none", "marker": "*", "markersize": 20}
    look |= {"markeredgecolor": "white", "zorder": 4}
    axes.plot([best.step], [best.mean_return], label=label, **look)


def _draw_stages(axes: Axes, stages: Series) -> None:
    """Draw a line where the stage of a curriculum changed, with its number."""
    for place in np.flatnonzero(np.diff(stages.values)):
        step = stages.steps[place]
        axes.axvline(step, color=GREY, linestyle=":", linewidth=1.2, zorder=0)
        number = f" stage {stages.values[place + 1]:.0f}"
        look: dict[str, Any] = {"color": GREY, "fontsize": 9, "va": "bottom"}
        axes.text(step, 0.01, number, transform=axes.get_xaxis_transform(), **look)


def _draw_metric(axes: Axes, curve: Curve) -> None:
    steps, values = curve.series.steps, curve.series.values
    look: dict[str, Any] = {"color": PALETTE[0], "linewidth": _WEIGHT}
    if not curve.is_dense:
        axes.plot(steps, values, marker=curve.marker, markersize=5, **look)
        return
    axes.plot(steps, values, color=PALETTE[0], linewidth=0.9, alpha=0.3, label="as logged")
    label = f"mean of {curve.window} neighbours"
    axes.plot(steps, smooth(values, curve.window), label=label, **look)


def _draw_groups(
    axes: Axes,
    groups: list[Group],
    by: str | None,
    solved: float | None,
    places: Mapping[str, int],
    *,
    is_grid: bool,
) -> None:
    is_crowded = len(groups) > _MOST_WITH_RUNS
    for group in groups:
        name, first = _line_name(group, by), group.curves[0]
        look = line_look(places[name])
        shown = name if is_grid else group.label
        if len(group.curves) == 1:
            label = shown if by == "seed" or is_grid else f"{shown} ({group.size})"
            steps, values = first.series.steps, first.series.values
            marks = sparse_marks(places[name], len(steps))
            axes.plot(steps, values, linewidth=_WEIGHT, label=label, **look, **marks)
            continue
        if not is_crowded:
            for curve in group.curves:
                x, y = curve.series.steps, curve.series.values
                axes.plot(x, y, linewidth=0.8, alpha=0.3, color=look["color"])
        band = iqm_band(group.curves)
        left_out = len(group.curves) - band.n_runs
        note = f", {left_out} cut short" if left_out else ""
        label = shown if is_grid else f"{shown} ({group.size}{note})"
        marks = sparse_marks(places[name], len(band.steps))
        axes.plot(band.steps, band.iqm, linewidth=_WEIGHT, label=label, zorder=3, **look, **marks)
        if len(band.steps) == 1 and not is_crowded and np.isfinite(band.low[0]):
            ends = [band.low[0], band.high[0]]
            axes.plot([band.steps[0]] * 2, ends, color=look["color"], linewidth=6, alpha=0.3)
        shade: dict[str, Any] = {"color": look["color"], "alpha": 0.1 if is_crowded else 0.2}
        axes.fill_between(band.steps, band.low, band.high, linewidth=0, **shade)
    _draw_solved(axes, solved)
    # Lines of the legend alone.
    if any(len(group.curves) >= ENOUGH_SEEDS for group in groups):
        grey: dict[str, Any] = {"color": GREY, "alpha": 0.3, "linewidth": 0}
        axes.fill_between([], [], [], label="IQM, 95 % bootstrap interval", **grey)
    if by != "seed" and min(group.n_seeds for group in groups) < ENOUGH_SEEDS:
        axes.plot([], [], linestyle="none", label=f"fewer than {ENOUGH_SEEDS} seeds: a rough guide")


def _draw_solved(axes: Axes, solved: float | None) -> None:
    if solved is not None:
        label = f"solved: {solved:,g}"
        axes.axhline(solved, color=INK, linewidth=1.4, linestyle=(0, (6, 4)), label=label)

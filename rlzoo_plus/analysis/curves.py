"""Learning curves: of one run with all its detail, of many runs as means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlzoo_plus.analysis.groups import (
    Curve,
    Group,
    group_curves,
    load_curve,
    mean_band,
    shared_value,
)
from rlzoo_plus.analysis.series import (
    TRAINING_RETURN,
    Evaluation,
    Series,
    load_evaluations,
    load_series,
)
from rlzoo_plus.analysis.style import (
    GREY,
    INK,
    PALETTE,
    add_legend,
    line_look,
    new_axes,
    save_plot,
    start_at_zero,
)
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.statistics import smooth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EVALUATION_RETURN = "mean_return"
FEW_SEEDS = 5
_LABELS = {
    EVALUATION_RETURN: "evaluation return",
    "iqm_return": "evaluation return (interquartile mean)",
    "success_rate": "success rate",
}
_DENSE = 100
Spread = Literal["std", "range"]


def plot_learning_curve(
    runs: Sequence[RunDir],
    out: Path,
    metric: str = EVALUATION_RETURN,
    by: str | None = None,
    spread: Spread = "std",
) -> Path:
    """Draw a metric over environment steps as a PNG.

    One run is drawn with the spread of its episodes, its best evaluation and its training curve.
    Many are put into groups, each with a mean over seeds and a 95 % bootstrap interval.

    Args:
        runs: The runs; those without the metric are left out.
        out: The file, ending in .png.
        metric: A name that `load_series` knows.
        by: How runs are put together, see `group_curves`.
        spread: One run's band: standard deviation of episodes, or lowest to highest episode.

    Returns:
        The file.

    Raises:
        ConfigError: No run has the metric, or the file's name is not a PNG's.
    """
    curves = {run: load_curve(run, metric) for run in runs}
    drawn = {run: curve for run, curve in curves.items() if len(curve.series)}
    if not drawn:
        named = ", ".join(str(run.path) for run in runs) or "no run given"
        raise ConfigError(f"{metric!r} has no values yet ({named}). Let the run go on first.")
    draw = _picture_of_one if len(drawn) == 1 else _picture_of_many
    figure, axes = draw(drawn, metric, by, spread)
    start_at_zero(axes)
    add_legend(axes)
    return save_plot(figure, out)


def _picture_of_one(
    drawn: dict[RunDir, Curve], metric: str, by: str | None, spread: Spread
) -> tuple[Figure, Axes]:
    [(run, curve)] = drawn.items()
    figure, axes = new_axes(curve.title, _LABELS.get(metric, metric))
    if metric == EVALUATION_RETURN:
        _draw_run(axes, run, spread)
        _draw_solved(axes, curve.solved_return)
    else:
        _draw_metric(axes, curve)
    return figure, axes


def _picture_of_many(
    drawn: dict[RunDir, Curve], metric: str, by: str | None, spread: Spread
) -> tuple[Figure, Axes]:
    curves = [_calm(curve) for curve in drawn.values()]
    note = " (smoothed)" if any(_is_dense(curve) for curve in curves) else ""
    figure, axes = new_axes(_title(curves), _LABELS.get(metric, metric) + note)
    groups = group_curves(curves, by)
    for number, group in enumerate(groups):
        _draw_group(axes, group, line_look(number), by)
    if metric == EVALUATION_RETURN:
        _draw_solved(axes, shared_value(curves, "solved_return"))
    _explain_groups(axes, groups, by)
    return figure, axes


def _title(curves: list[Curve]) -> str:
    algo, env = shared_value(curves, "algo"), shared_value(curves, "env")
    if algo and env:
        return f"{algo} on {env}"
    return str(env or algo or f"{len(curves)} runs")


def _is_dense(curve: Curve) -> bool:
    return len(curve.series) >= _DENSE


def _window(curve: Curve) -> int:
    return len(curve.series) // 40 * 2 + 1


def _calm(curve: Curve) -> Curve:
    """Smooth a curve of many points: several of them on top of each other are only noise."""
    if not _is_dense(curve):
        return curve
    values = smooth(curve.series.values, _window(curve))
    return replace(curve, series=Series(curve.series.steps, values))


def _draw_run(axes: Axes, run: RunDir, spread: Spread) -> None:
    evaluations = load_evaluations(run)
    steps = np.array([e.step for e in evaluations])
    means = np.array([e.mean_return for e in evaluations])
    training = load_series(run, TRAINING_RETURN)
    if len(training):
        look: dict[str, Any] = {"color": GREY, "linewidth": 1.1, "alpha": 0.75, "zorder": 1}
        axes.plot(training.steps, training.values, label="training episodes", **look)
    low, high, words = _episode_band(evaluations, spread)
    colour = PALETTE[0]
    axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0, label=words)
    look = {"color": colour, "linewidth": 2.6, "markersize": 6.5, "markeredgecolor": "white"}
    axes.plot(steps, means, marker="o", label="evaluation mean", zorder=3, **look)
    best = evaluations[int(np.argmax(means))]
    axes.plot(
        [best.step],
        [best.mean_return],
        linestyle="none",
        marker="*",
        markersize=20,
        color=PALETTE[1],
        markeredgecolor="white",
        zorder=4,
        label=f"best: {best.mean_return:,.4g} at {best.step:,} steps",
    )


def _episode_band(
    evaluations: list[Evaluation], spread: Spread
) -> tuple[np.ndarray, np.ndarray, str]:
    lowest = np.array([e.low for e in evaluations])
    highest = np.array([e.high for e in evaluations])
    if spread == "range":
        return lowest, highest, "lowest to highest episode"
    means = np.array([e.mean_return for e in evaluations])
    stds = np.array([e.std_return for e in evaluations])
    # No band where no episode was: a return has bounds that mean plus deviation ignores.
    low, high = np.maximum(means - stds, lowest), np.minimum(means + stds, highest)
    return np.minimum(low, means), np.maximum(high, means), "± 1 std of episodes"


def _draw_metric(axes: Axes, curve: Curve) -> None:
    steps, values = curve.series.steps, curve.series.values
    colour, marker = PALETTE[0], "o" if len(steps) < _DENSE // 2 else ""
    if not _is_dense(curve):
        axes.plot(steps, values, color=colour, linewidth=2.4, marker=marker, markersize=5)
        return
    window = _window(curve)
    axes.plot(steps, values, color=colour, linewidth=0.9, alpha=0.3, label="as logged")
    label = f"mean of {window} neighbours"
    axes.plot(steps, smooth(values, window), color=colour, linewidth=2.4, label=label)


def _explain_groups(axes: Axes, groups: list[Group], by: str | None) -> None:
    if any(len(group.curves) > 1 for group in groups):
        axes.fill_between(
            [], [], [], color=GREY, alpha=0.3, linewidth=0, label="95 % bootstrap interval"
        )
    if by != "seed" and min(group.n_seeds for group in groups) < FEW_SEEDS:
        axes.plot([], [], linestyle="none", label=f"fewer than {FEW_SEEDS} seeds: a rough guide")


def _draw_group(axes: Axes, group: Group, look: dict[str, Any], by: str | None) -> None:
    label = group.label if by == "seed" and len(group.curves) == 1 else None
    if len(group.curves) == 1:
        series = group.curves[0].series
        marker = "o" if len(series) < _DENSE // 2 else ""
        label = label or f"{group.label} ({group.size})"
        axes.plot(series.steps, series.values, linewidth=2.4, marker=marker, label=label, **look)
        return
    for curve in group.curves:
        axes.plot(curve.series.steps, curve.series.values, linewidth=0.8, alpha=0.4, **look)
    band = mean_band(group.curves)
    left_out = len(group.curves) - band.n_runs
    note = f", {left_out} cut short" if left_out else ""
    label = f"{group.label} ({group.size}{note})"
    axes.plot(band.steps, band.mean, linewidth=2.8, label=label, zorder=3, **look)
    if band.n_runs > 1:
        colour = look["color"]
        axes.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.2, linewidth=0)


def _draw_solved(axes: Axes, solved_return: object) -> None:
    if isinstance(solved_return, float):
        dashes = (0, (6, 4))
        label = f"solved: {solved_return:,g}"
        axes.axhline(solved_return, color=INK, linewidth=1.4, linestyle=dashes, label=label)

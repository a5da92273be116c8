"""Charts of scores: final scores, performance profile, probability of improvement, threshold.

They follow Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice".
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.analysis.estimates import ENOUGH_SEEDS, estimate
from rlzoo_plus.analysis.scores import Side, Which, check_comparable, scale_of
from rlzoo_plus.analysis.statistics import (
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap_ci,
)
from rlzoo_plus.analysis.style import (
    FAINT,
    GREY,
    INK,
    SCREEN,
    STEPS_LABEL,
    Style,
    escaped,
    finish,
    line_look,
    new_axes,
    new_grid,
    sparse_marks,
)
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS, _RESAMPLES = 201, 500
_DOTS: dict[str, Any] = {"marker": "o", "linestyle": "none"}
_TICK: dict[str, Any] = {"marker": "|", "markeredgewidth": 3, "linestyle": "none"}
_FEW = f"fewer than {ENOUGH_SEEDS} seeds: a rough guide"


def scores_figure(sides: Sequence[Side], which: Which = "final", style: Style = SCREEN) -> Figure:
    """Return interquartile means of scores with 95 % intervals, and each seed as a point."""
    envs = _envs(sides)
    titles, alone = [escaped(env) for env in envs], f"{which} score on {escaped(envs[0])}"
    label = f"mean return of {which} evaluation"
    figure, panels = _rows_for_sides(sides, f"{which} score", titles, alone, label, style)
    for axes, env in zip(panels, envs, strict=True):
        for row, side in enumerate(sides):
            scores = side.scores(env, which) if env in side.runs else []
            found, colour = estimate(scores), line_look(row)["color"]
            if found is None:
                continue
            axes.plot(scores, [row] * len(scores), color=colour, alpha=0.45, markersize=5, **_DOTS)
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [row, row], color=colour, linewidth=7, alpha=0.4)
            axes.plot([found.iqm], [row], markersize=20, color=colour, **_TICK)
    panels[0].plot([], [], label="a seed", color=GREY, **_DOTS)
    panels[0].plot([], [], label="IQM", markersize=14, color=GREY, **_TICK)
    interval = "95 % bootstrap interval"
    panels[0].plot([], [], color=GREY, linewidth=7, alpha=0.4, label=interval)
    _note_few(panels[0], sides)
    return finish(figure, style)


def profile_figure(sides: Sequence[Side], which: Which = "final", style: Style = SCREEN) -> Figure:
    """Return the share of runs above each normalised score, with 95 % bands."""
    scaled, source = _scaled(sides, which)
    fewest = min(len(task) for tasks in scaled for task in tasks)
    if fewest < ENOUGH_SEEDS:
        raise ConfigError(
            f"a performance profile of {fewest} seed{'s' if fewest > 1 else ''} is a few steps "
            f"that chance made: it takes {ENOUGH_SEEDS} of each variant on each environment. "
            "--kind scores shows each seed."
        )
    every = np.concatenate([task for tasks in scaled for task in tasks])
    low, high = float(every.min()), float(every.max())
    room = 0.05 * ((high - low) or 1.0)
    taus = np.linspace(low - room, high + room, _POINTS)
    figure, axes = new_axes("performance profile", "share of runs above it", source, style)
    for number, (side, tasks) in enumerate(zip(sides, scaled, strict=True)):
        look, marks = line_look(number), sparse_marks(number, _POINTS)
        shares = performance_profile(np.concatenate(tasks), taus)
        look |= {"linewidth": 2.4, "drawstyle": "steps-post"}
        axes.plot(taus, shares, label=_sized(side), **look, **marks)
        band = stratified_bootstrap_ci(
            tasks, lambda drawn: performance_profile(drawn, taus), _RESAMPLES
        )
        shade = {"color": look["color"], "alpha": 0.15 if len(sides) <= 6 else 0.06}
        axes.fill_between(taus, *band, linewidth=0, step="post", **shade)
    grey: dict[str, Any] = {"color": GREY, "alpha": 0.3, "linewidth": 0}
    axes.fill_between([], [], [], label="95 % bootstrap interval", **grey)
    axes.set_ylim(-0.02, 1.04)
    return finish(figure, style)


def improvement_figure(
    sides: Sequence[Side], which: Which = "final", style: Style = SCREEN
) -> Figure:
    """Return a table in colours: how probably a run of the row scores above one of the column."""
    if len(sides) < 2:
        raise ConfigError("one variant alone improves on nothing. Name the runs of at least two.")
    scaled, _ = _scaled(sides, which)
    n = len(sides)
    figure, axes = new_axes("probability of improvement", "", "", style)
    names = [_short(escaped(side.name)) for side in sides]
    longest = max(len(line) for name in names for line in name.splitlines())
    # Beside the cells are the names, about 0.09 inch a character, and the bar.
    beside = 0.09 * longest + 2.2
    cell = 0.95 if style.sheet_in is None else min(0.95, (style.sheet_in - beside) / n)
    width = max(n * cell, 3.4) + beside if style.sheet_in is None else style.sheet_in
    figure.set_size_inches(width, max(n * cell, 2.4) + 0.065 * longest + 1.2)
    values = np.full((n, n), np.nan)
    look: dict[str, Any] = {"ha": "center", "va": "center"}
    look["fontsize"] = max(6.0, min(11.0, 11.5 * cell))
    for i in range(n):
        for j in (j for j in range(n) if j != i):
            values[i, j] = probability_of_improvement(scaled[i], scaled[j])
            text = f"{values[i, j]:.2f}"
            fewest = min(len(task) for k in (i, j) for task in scaled[k])
            if fewest >= ENOUGH_SEEDS and cell > 0.7:
                ends = _improvement_interval(scaled[i], scaled[j])
                text += f"\n[{ends[0]:.2f}, {ends[1]:.2f}]"
            axes.text(j, i, text, color="white" if values[i, j] > 0.55 else INK, **look)
    axes.set_facecolor(FAINT)
    # The more probable, the darker: so it is read in grey, too.
    image = axes.imshow(values, vmin=0, vmax=1, cmap="Blues")
    axes.set_yticks(range(n), names)
    axes.set_xticks(range(n), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.grid(visible=False)
    bar = figure.colorbar(image, ax=axes, shrink=0.7)
    bar.ax.tick_params(labelsize=12.5, colors=INK)
    bar.set_label("P(row scores higher)", fontsize=14, color=INK)
    return finish(figure, style)


def threshold_figure(
    sides: Sequence[Side], threshold: float | None = None, style: Style = SCREEN
) -> Figure:
    """Return after how many steps evaluations first reach a mean return.

    Without a threshold, it is that from which on each environment is solved.
    """
    envs = _envs(sides)
    limits = {env: threshold if threshold is not None else _solved(sides, env) for env in envs}
    titles = [f"{escaped(env)}: {limits[env]:g}" for env in envs]
    alone = f"steps to a return of {limits[envs[0]]:g} on {escaped(envs[0])}"
    figure, panels = _rows_for_sides(sides, "steps to threshold", titles, alone, STEPS_LABEL, style)
    for axes, env in zip(panels, envs, strict=True):
        for row, side in enumerate(sides):
            runs = list(side.runs.get(env, {}).values())
            first = [
                next((float(e.step) for e in r.evaluations if e.mean_return >= limits[env]), np.inf)
                for r in runs
            ]
            reached = [step for step in first if np.isfinite(step)]
            colour = line_look(row)["color"]
            axes.plot(reached, [row] * len(reached), color=colour, alpha=0.6, markersize=7, **_DOTS)
            # Below half of the seeds, the median is never.
            if runs and np.isfinite(middle := float(np.median(first))):
                axes.plot([middle], [row], markersize=22, color=colour, **_TICK)
            text = f"{len(reached)} of {len(runs)}" if runs else "-"
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
            place |= {"xytext": (4, 0), "textcoords": "offset points"}
            axes.annotate(text, (1.0, row), fontsize=11, color=INK, **place)
        most = max(
            e.step for s in sides for r in s.runs.get(env, {}).values() for e in r.evaluations
        )
        axes.set_xlim(0, 1.04 * most)
    panels[0].plot([], [], color=GREY, label="first time of a seed", **_DOTS)
    label = "median of all seeds, none if half never get there"
    panels[0].plot([], [], color=GREY, markersize=14, label=label, **_TICK)
    _note_few(panels[0], sides)
    return finish(figure, style)


def _scaled(sides: Sequence[Side], which: Which) -> tuple[list[list[np.ndarray]], str]:
    """Return normalised scores by side and environment, and what the scale is."""
    if not sides:
        raise ConfigError("no finished run has a score yet. Let the runs go on first.")
    check_comparable(sides)
    scales = {env: scale_of(env, sides) for env in sides[0].runs}
    sources = dict.fromkeys(scale.source for scale in scales.values())
    scaled = [
        [np.array(scale(side.scores(env, which))) for env, scale in scales.items()]
        for side in sides
    ]
    return scaled, f"{which} score, normalised by {' or '.join(sources)}"


def _improvement_interval(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> tuple[float, float]:
    ends = np.cumsum([len(task) for task in (*first, *second)])[:-1]

    def probability(drawn: np.ndarray) -> float:
        tasks = np.split(drawn, ends)
        return probability_of_improvement(tasks[: len(first)], tasks[len(first) :])

    return stratified_bootstrap_ci([*first, *second], probability, _RESAMPLES)


def _envs(sides: Sequence[Side]) -> list[str]:
    envs = list(dict.fromkeys(env for side in sides for env in side.runs))
    if not envs:
        raise ConfigError("no finished run has a score yet. Let the runs go on first.")
    return envs


def _solved(sides: Sequence[Side], env: str) -> float:
    known = {r.solved_return for side in sides for r in side.runs.get(env, {}).values()}
    if len(known) == 1 and (value := known.pop()) is not None:
        return value
    raise ConfigError(f"{env} has no env.solved_return. Give a return with --threshold.")


def _rows_for_sides(
    sides: Sequence[Side],
    title: str,
    titles: Sequence[str],
    alone: str,
    x_label: str,
    style: Style,
) -> tuple[Figure, list[Axes]]:
    """Return axes with a row for each side; `alone` is the title of a single one."""
    names = [_short(escaped(side.name)) for side in sides]
    beside = 0.1 * max(len(line) for name in names for line in name.splitlines())
    title = title if titles[1:] else alone
    figure, panels = new_grid(title, titles, "", x_label, style, beside)
    columns = {axes.get_subplotspec().colspan.start for axes in panels}  # type: ignore[union-attr]
    for axes in panels:
        is_left = axes.get_subplotspec().colspan.start == 0  # type: ignore[union-attr]
        axes.set_yticks(range(len(sides)), names if is_left else [""] * len(sides))
        axes.margins(x=0.05)
        axes.set_ylim(len(sides) - 0.4, -0.6)
        axes.grid(axis="x", color=FAINT)
        axes.grid(axis="y", visible=False)
    lines = sum(name.count("\n") + 1 for name in names)
    height = 1.8 + 0.45 * len(sides) + 0.2 * (lines - len(sides))
    figure.set_figheight(max(3.0, height) * -(-len(panels) // len(columns)))
    return figure, panels


def _short(name: str) -> str:
    """Return a name in lines of some width."""
    return textwrap.fill(name, 26)


def _note_few(axes: Axes, sides: Sequence[Side]) -> None:
    if min(len(runs) for side in sides for runs in side.runs.values()) < ENOUGH_SEEDS:
        axes.plot([], [], linestyle="none", label=_FEW)


def _sized(side: Side) -> str:
    sizes = sorted({len(runs) for runs in side.runs.values()})
    text = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{escaped(side.name)} ({text} seeds)"


KINDS: dict[str, Callable[..., Figure]] = {
    "scores": scores_figure,
    "profile": profile_figure,
    "improvement": improvement_figure,
    "threshold": threshold_figure,
}

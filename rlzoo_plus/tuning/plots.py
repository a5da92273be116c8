"""The picture of a study: its history, learning curves, what matters, and where good values lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.analysis.style import DPI, FAINT, GREY, INK, PALETTE, save_picture
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import Direction
from rlzoo_plus.tuning.figures import FOLLOWED, RUNGS
from rlzoo_plus.tuning.panels import add_legend, dress, escaped, say
from rlzoo_plus.tuning.slices import draw_slice
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE_IN = (17.0, 9.8)
_MOST_BARS = 8
_LONGEST_NAME = 24
_SLICES = 3


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Attributes:
        title: Above all of it.
        trials: All trials of the study.
        objectives: Directions by name, in the order of a trial's values.
        importances: Shares by parameter, the largest first; empty if they are not known.
        front: Numbers of the trials that are best: one, or the Pareto front.
        seeds: Runs of a trial.
    """

    title: str
    trials: Sequence[TrialView]
    objectives: Mapping[str, Direction]
    importances: Mapping[str, float] = field(default_factory=dict)
    front: Sequence[int] = ()
    seeds: int = 1

    @property
    def aim(self) -> str:
        """The first objective's name."""
        return next(iter(self.objectives))

    @property
    def done(self) -> list[TrialView]:
        """The trials that have values."""
        wanted = len(self.objectives)
        return [view for view in self.trials if view.values and len(view.values) == wanted]

    @property
    def is_maximized(self) -> bool:
        """Tell whether more of the first objective is better."""
        return self.objectives[self.aim] == "maximize"


def plot_study(picture: Picture, out: Path) -> Path:
    """Draw a study as a PNG and return the file.

    Raises:
        ConfigError: No trial has a value yet, or the file cannot be written.
    """
    if not any(view.values or view.intermediate for view in picture.trials):
        raise ConfigError(f"{picture.title}: no trial has a value yet. Let the study go on first.")
    figure, panels = _panels(picture.title)
    _draw_history(panels[0], picture)
    if len(picture.objectives) > 1:
        _draw_front(panels[1], picture)
    else:
        _draw_curves(panels[1], picture)
    _draw_importances(panels[2], picture)
    names = _sliced(picture)
    for axes, name in zip(panels[3:], [*names, *[None] * _SLICES], strict=False):
        if name is None:
            axes.set_axis_off()
        else:
            dress(axes, short_name(name), "", picture.aim)
            draw_slice(axes, name, picture.done, picture.front)
    return save_picture(figure, out)


def short_name(name: str) -> str:
    """Return a parameter's name without what goes without saying, cut to a length."""
    text = printable(name.replace("algo.hyperparams.", ""), 200)
    return text if len(text) <= _LONGEST_NAME else "..." + text[-(_LONGEST_NAME - 3) :]


def _panels(title: str) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.16, h_pad=0.16, wspace=0.03, hspace=0.05)
    figure = Figure(figsize=_SIZE_IN, dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(escaped(title), fontsize=18, color=INK, fontweight="bold", x=0.012, ha="left")
    grid = figure.add_gridspec(2, 6)
    top = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(3)]
    bottom = [figure.add_subplot(grid[1, 2 * i : 2 * i + 2]) for i in range(3)]
    return figure, [*top, *bottom]


def _draw_history(axes: Axes, picture: Picture) -> None:
    from matplotlib.ticker import MaxNLocator

    dress(axes, "history", "trial", picture.aim)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    done = picture.done
    numbers = [view.number for view in done]
    values = np.array([_first(view) for view in done])
    if done:
        look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6.5}
        axes.plot(numbers, values, color=PALETTE[0], alpha=0.75, label="done", **look)
        feasible = [view for view in done if view.is_feasible]
        _draw_best_so_far(axes, picture, feasible)
        broken = [view for view in done if not view.is_feasible]
        if broken:
            look = {"linestyle": "none", "marker": "o", "markersize": 6.5, "color": "white"}
            values = np.array([_first(view) for view in broken])
            axes.plot(
                [view.number for view in broken],
                values,
                markeredgecolor=PALETTE[3],
                label="breaks a constraint",
                **look,
            )
    _draw_ended(axes, picture, TrialState.PRUNED, "x", PALETTE[5])
    _draw_ended(axes, picture, TrialState.FAILED, "s", PALETTE[1])
    add_legend(axes)


def _draw_best_so_far(axes: Axes, picture: Picture, feasible: list[TrialView]) -> None:
    if not feasible:
        return
    values = np.array([_first(view) for view in feasible])
    so_far = (np.maximum if picture.is_maximized else np.minimum).accumulate(values)
    last = max(view.number for view in picture.trials)
    steps = [*(view.number for view in feasible), last]
    axes.plot(
        steps,
        [*so_far, so_far[-1]],
        drawstyle="steps-post",
        color=INK,
        linewidth=2.0,
        label=f"best: {so_far[-1]:,.4g}",
    )


def _draw_ended(axes: Axes, picture: Picture, state: TrialState, marker: str, colour: str) -> None:
    """Mark trials without a value at the foot of the axes: where they would be is not known."""
    numbers = [view.number for view in picture.trials if view.state is state]
    if numbers:
        axes.plot(
            numbers,
            np.full(len(numbers), 0.015),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker=marker,
            markersize=6,
            color=colour,
            label=f"{state} ({len(numbers)})",
            clip_on=False,
        )


def _draw_curves(axes: Axes, picture: Picture) -> None:
    """Draw what the trials reported while they ran, the best one on top."""
    # What is reported is one evaluation, not the objective.
    figure = FOLLOWED.get(picture.aim, "evaluation").replace("_", " ")
    unit = "share of a run" if picture.seeds == 1 else "runs"
    dress(axes, "learning curves", unit, figure)
    reported = [view for view in picture.trials if view.intermediate]
    if not reported:
        say(axes, "no trial has reported yet")
        return
    best = next((view for view in reported if view.number in picture.front), None)
    for view in reported:
        is_pruned = view.state is TrialState.PRUNED
        rungs = sorted(view.intermediate)
        look: dict[str, Any] = {"color": PALETTE[0], "linewidth": 1.1, "alpha": 0.35, "zorder": 2}
        if is_pruned:
            look |= {"color": GREY}
        if view is best:
            look = {"color": PALETTE[1], "linewidth": 2.8, "zorder": 4}
            look["label"] = f"best: trial {view.number}"
        shares = [rung / RUNGS for rung in rungs]
        axes.plot(shares, [view.intermediate[rung] for rung in rungs], **look)
    pruned = [view for view in reported if view.state is TrialState.PRUNED]
    if pruned:
        ends = [max(view.intermediate) for view in pruned]
        axes.plot(
            [end / RUNGS for end in ends],
            [view.intermediate[end] for view, end in zip(pruned, ends, strict=True)],
            linestyle="none",
            marker="x",
            markersize=6,
            color=PALETTE[5],
            zorder=3,
            label="pruned here",
        )
    for seed in range(1, picture.seeds):
        axes.axvline(seed, color=GREY, linewidth=1.0, linestyle=":")
    add_legend(axes)


def _draw_front(axes: Axes, picture: Picture) -> None:
    (x_name, x_direction), (y_name, y_direction) = list(picture.objectives.items())[:2]
    dress(axes, "trade-off", f"{x_name} ({x_direction})", f"{y_name} ({y_direction})")
    if not picture.done:
        say(axes, "no trial is done yet")
        return
    points = {view.number: (view.values or ())[:2] for view in picture.done}
    x, y = zip(*points.values(), strict=True)
    look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6.5}
    axes.plot(x, y, color=PALETTE[0], alpha=0.5, label="done", **look)
    front = sorted(points[number] for number in picture.front if number in points)
    if front:
        x, y = zip(*front, strict=True)
        # With three objectives, the first two need not form a line.
        line = "-" if len(picture.objectives) == 2 else "none"
        look = {"marker": "o", "markersize": 8.5, "linewidth": 1.6, "markeredgecolor": "white"}
        axes.plot(x, y, color=PALETTE[1], linestyle=line, label="Pareto front", **look)
    _name_points(axes, [(number, points[number]) for number in picture.front if number in points])
    add_legend(axes)


def _name_points(axes: Axes, points: Sequence[tuple[int, tuple[float, ...]]]) -> None:
    """Write numbers beside points, except where one would lie on another."""
    # Limits are known only after all is drawn.
    axes.autoscale_view()
    placed: list[np.ndarray] = []
    for number, point in points:
        place = axes.transAxes.inverted().transform(axes.transData.transform(point))
        if any(np.all(np.abs(place - other) < (0.08, 0.055)) for other in placed):
            continue
        placed.append(place)
        look: dict[str, Any] = {"fontsize": 10.5, "color": INK, "textcoords": "offset points"}
        axes.annotate(str(number), (point[0], point[1]), xytext=(7, -13), **look)


def _draw_importances(axes: Axes, picture: Picture) -> None:
    known = bool(picture.importances)
    dress(axes, f"importance for {picture.aim}", "share" if known else "", "")
    if not known:
        say(axes, "too few finished trials to tell")
        return
    shown = dict(list(picture.importances.items())[:_MOST_BARS])
    places = np.arange(len(shown))[::-1]
    axes.barh(places, list(shown.values()), color=PALETTE[0], height=0.62)
    for place, share in zip(places, shown.values(), strict=True):
        axes.text(share + 0.01, place, f"{100 * share:.0f} %", va="center", fontsize=11, color=INK)
    axes.set_yticks(places, [escaped(short_name(name)) for name in shown])
    axes.set_xlim(0, max(max(shown.values()) * 1.18, 0.05))
    axes.set_ylim(-0.6, max(len(shown), 4) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=FAINT, linewidth=1.0)


def _sliced(picture: Picture) -> list[str]:
    """Return the parameters that get a panel: the most important, else the first."""
    names = dict.fromkeys([*picture.importances])
    names |= dict.fromkeys(name for view in picture.done for name in view.params)
    return list(names)[:_SLICES]


def _first(view: TrialView) -> float:
    assert view.values is not None
    return view.values[0]

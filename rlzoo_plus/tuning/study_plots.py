"""The plots of a study: an overview, and Optuna's own plots.

Optuna draws each plot as a figure of its own, without the trials that were pruned or failed. The
overview shows them too, with what matters, in one figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from rlzoo_plus.analysis.style import DPI, FAINT, GREY, INK, PALETTE, save_plot
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import Direction
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.objectives import FOLLOWED, RUNGS
from rlzoo_plus.tuning.trials import TrialState, TrialView, key_of, value_of
from rlzoo_plus.tuning.with_optuna import optuna

_SIZE_IN, _OPTUNA_SIZE_IN = (17.0, 9.8), (11.0, 7.0)
_MOST_BARS, _SLICES, _LONGEST_NAME = 8, 3, 24
# Numbers further apart than this get a logarithmic axis.
_WIDE = 30.0
_MOST_LABELS, _LONGEST_LABEL = 8, 14
# Optuna's plots by the name of their function, and whether it takes a list of parameters.
OPTUNA_PLOTS = {"contour": True, "edf": False, "parallel_coordinate": True, "rank": True}
OPTUNA_PLOTS |= {"slice": True, "timeline": False}
# More of them would be too small to read.
_MOST_PARAMS = 4


@dataclass(frozen=True)
class Overview:
    """What the overview shows."""

    title: str
    trials: Sequence[TrialView]
    objectives: Mapping[str, Direction]  # Directions by name, in the order of a trial's values
    importances: Mapping[str, float] = field(default_factory=dict)  # Shares, the largest first
    front: Sequence[int] = ()  # The best trials: one, or the Pareto front
    seeds: int = 1  # Runs of a trial

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
    def params(self) -> list[str]:
        """The keys that were drawn, the most important first."""
        drawn = (name for view in self.done for name in view.used)
        return list(dict.fromkeys([*self.importances, *drawn]))


def plot_study(overview: Overview, out: Path) -> Path:
    """Draw the overview of a study as a PNG and return the file.

    Raises:
        ConfigError: No trial has a value yet, or the file cannot be written.
    """
    if not any(view.values or view.intermediate for view in overview.trials):
        raise ConfigError(f"{overview.title}: no trial has a value yet. Let the study go on first.")
    layout = ConstrainedLayoutEngine(w_pad=0.16, h_pad=0.16, wspace=0.03, hspace=0.05)
    figure = Figure(figsize=_SIZE_IN, dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    title = escaped(overview.title)
    figure.suptitle(title, fontsize=18, color=INK, fontweight="bold", x=0.012, ha="left")
    panels = list(figure.subplots(2, 3).flat)
    _draw_history(panels[0], overview)
    (_draw_front if len(overview.objectives) > 1 else _draw_curves)(panels[1], overview)
    _draw_importances(panels[2], overview)
    for axes, name in zip_longest(panels[3:], overview.params[:_SLICES]):
        if name is None:
            axes.set_axis_off()
        else:
            _draw_slice(axes, name, overview)
    return save_plot(figure, out)


def plot_with_optuna(kind: str, study: optuna.Study, overview: Overview, out: Path) -> Path:
    """Draw one of Optuna's plots as a PNG and return the file.

    `kind` is a key of `OPTUNA_PLOTS`; the most important parameters of the overview are drawn.

    Raises:
        ConfigError: There is no such plot, no trial is done, or the file cannot be written.
    """
    if kind not in OPTUNA_PLOTS:
        raise ConfigError(unknown_name("plot", kind, ["overview", *OPTUNA_PLOTS]))
    if not overview.done:
        raise ConfigError(f"{overview.title}: no trial is done yet. Let the study go on first.")
    names = {name: short_name(name) for name in overview.params}
    if len(set(names.values())) < len(names):
        names = {name: printable(name, 200) for name in names}
    options: dict[str, Any] = {}
    if OPTUNA_PLOTS[kind]:
        options["params"] = list(names.values())[:_MOST_PARAMS]
    if kind != "timeline":
        options["target_name"] = overview.aim
        if len(overview.objectives) > 1:
            options["target"] = lambda trial: trial.values[0]
    pyplot.switch_backend("agg")
    # Optuna draws in the global state of pyplot, with a style sheet of its own.
    with pyplot.rc_context({"figure.constrained_layout.use": True}):
        draw = getattr(optuna.visualization.matplotlib, f"plot_{kind}")
        draw(_renamed(study, names), **options)
        figure = pyplot.gcf()
        try:
            figure.set_size_inches(_OPTUNA_SIZE_IN)
            figure.suptitle(escaped(f"{overview.title}: {kind.replace('_', ' ')}"), color=INK)
            for axes in figure.axes:
                axes.set_title("")
                axes.set_facecolor("white")
                axes.tick_params(grid_color=FAINT)
            return save_plot(figure, out)
        finally:
            pyplot.close(figure)


def _renamed(study: optuna.Study, names: Mapping[str, str]) -> optuna.Study:
    """Return a copy of a study, in memory, of values instead of parameters, with short names."""
    copy = optuna.create_study(directions=study.directions)
    for trial in study.get_trials(deepcopy=True):
        shown = {name: names.get(key_of(name), name) for name in trial.params}
        trial.params, trial.distributions = (
            {shown[name]: value_of(name, param) for name, param in trial.params.items()},
            {shown[name]: _of_values(name, each) for name, each in trial.distributions.items()},
        )
        copy.add_trial(trial)
    return copy


def _of_values(
    name: str, params: optuna.distributions.BaseDistribution
) -> optuna.distributions.BaseDistribution:
    """Return the distribution of the values that a parameter's draws stand for."""
    numbers = (optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution)
    if key_of(name) == name or not isinstance(params, numbers):
        return params
    low, high = sorted((value_of(name, params.low), value_of(name, params.high)))
    if isinstance(params, optuna.distributions.IntDistribution):
        return optuna.distributions.IntDistribution(low, high, log=True)
    return optuna.distributions.FloatDistribution(low, high)


def short_name(name: str) -> str:
    """Return a parameter's name without `algo.hyperparams`, cut to a length."""
    text = printable(name.replace("algo.hyperparams.", ""), 200)
    return text if len(text) <= _LONGEST_NAME else "..." + text[-(_LONGEST_NAME - 3) :]


def escaped(text: str) -> str:
    """Return text for a figure: a dollar would begin a formula."""
    return text.replace("$", r"\$")


def _dress(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Give a panel its titles and the style of all panels."""
    axes.set_title(escaped(title), fontsize=14, color=INK, loc="left", pad=10)
    axes.set_xlabel(escaped(x_label), fontsize=12.5, color=INK, labelpad=6)
    axes.set_ylabel(escaped(y_label), fontsize=12.5, color=INK, labelpad=6)
    axes.tick_params(labelsize=11.5, colors=INK, length=4, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=1.0)
    axes.set_axisbelow(True)
    axes.margins(x=0.04, y=0.08)


def _say(axes: Axes, text: str) -> None:
    """Write why a panel is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY, fontsize=12.5)
    axes.set(xticks=[], yticks=[])


def _dots(axes: Axes, points: Sequence[Sequence[float]], color: str, **look: Any) -> None:
    if points:
        dotted: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6.5} | look
        axes.plot(*zip(*points, strict=True), color=color, **dotted)


def _add_legend(axes: Axes) -> None:
    """Add the legend below, where it hides nothing."""
    if axes.get_legend_handles_labels()[1]:
        look: dict[str, Any] = {"fontsize": 11, "labelcolor": INK, "frameon": False, "ncols": 3}
        look |= {"borderaxespad": 0.0, "columnspacing": 1.2, "handlelength": 1.4}
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), **look)


def _points(views: Sequence[TrialView]) -> list[tuple[int, float]]:
    """Return the trials' numbers and first objectives."""
    return [(view.number, view.values[0]) for view in views if view.values is not None]


def _draw_history(axes: Axes, overview: Overview) -> None:
    _dress(axes, "history", "trial", overview.aim)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    done = overview.done
    _dots(axes, _points(done), PALETTE[0], alpha=0.75, label="done")
    feasible = _points([view for view in done if view.is_feasible])
    if feasible:
        numbers, values = zip(*feasible, strict=True)
        is_maximized = overview.objectives[overview.aim] == "maximize"
        so_far = (np.maximum if is_maximized else np.minimum).accumulate(values)
        steps = [*numbers, max(view.number for view in overview.trials)]
        label = f"best: {so_far[-1]:,.4g}"
        line: dict[str, Any] = {"drawstyle": "steps-post", "color": INK, "linewidth": 2.0}
        axes.plot(steps, [*so_far, so_far[-1]], label=label, **line)
    broken = _points([view for view in done if not view.is_feasible])
    _dots(axes, broken, "white", markeredgecolor=PALETTE[3], label="breaks a constraint")
    # Trials without a value are at the bottom of the axes: where they would be is not known.
    bottom = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    for state, marker, color in (
        (TrialState.PRUNED, "x", PALETTE[5]),
        (TrialState.FAILED, "s", PALETTE[1]),
    ):
        ended = [(view.number, 0.015) for view in overview.trials if view.state is state]
        _dots(axes, ended, color, marker=marker, label=f"{state} ({len(ended)})", **bottom)
    _add_legend(axes)


def _draw_curves(axes: Axes, overview: Overview) -> None:
    """Draw what the trials reported while they ran, the best one on top."""
    # What is reported is one evaluation, not the objective.
    metric = FOLLOWED.get(overview.aim, "evaluation").replace("_", " ")
    unit = "share of a run" if overview.seeds == 1 else "runs"
    _dress(axes, "learning curves", unit, metric)
    reported = [view for view in overview.trials if view.intermediate]
    if not reported:
        _say(axes, "no trial has reported yet")
        return
    best = next((view for view in reported if view.number in overview.front), None)
    ends = []
    for view in reported:
        points = [(rung / RUNGS, view.intermediate[rung]) for rung in sorted(view.intermediate)]
        is_pruned = view.state is TrialState.PRUNED
        color = GREY if is_pruned else PALETTE[0]
        look: dict[str, Any] = {"color": color, "linewidth": 1.1, "alpha": 0.35, "zorder": 2}
        if view is best:
            look = {"color": PALETTE[1], "linewidth": 2.8, "zorder": 4}
            look["label"] = f"best: trial {view.number}"
        axes.plot(*zip(*points, strict=True), **look)
        ends += points[-1:] if is_pruned else []
    _dots(axes, ends, PALETTE[5], marker="x", zorder=3, label="pruned here")
    for seed in range(1, overview.seeds):
        axes.axvline(seed, color=GREY, linewidth=1.0, linestyle=":")
    _add_legend(axes)


def _draw_front(axes: Axes, overview: Overview) -> None:
    (x_name, x_direction), (y_name, y_direction) = list(overview.objectives.items())[:2]
    _dress(axes, "trade-off", f"{x_name} ({x_direction})", f"{y_name} ({y_direction})")
    if not overview.done:
        _say(axes, "no trial is done yet")
        return
    points = {view.number: (view.values or ())[:2] for view in overview.done}
    _dots(axes, list(points.values()), PALETTE[0], alpha=0.5, label="done")
    front = {number: points[number] for number in overview.front if number in points}
    # With three objectives, the first two need not form a line.
    line = "-" if len(overview.objectives) == 2 else "none"
    look: dict[str, Any] = {"markersize": 8.5, "linewidth": 1.6, "markeredgecolor": "white"}
    ordered = sorted(front.values())
    _dots(axes, ordered, PALETTE[1], label="Pareto front", linestyle=line, **look)
    # Limits are known only after all is drawn.
    axes.autoscale_view()
    placed: list[np.ndarray] = []
    for number, (x, y) in front.items():
        place = (axes.transData - axes.transAxes).transform((x, y))
        # No number is written on another.
        if all(np.any(np.abs(place - other) >= (0.08, 0.055)) for other in placed):
            placed.append(place)
            label: dict[str, Any] = {"xytext": (7, -13), "textcoords": "offset points"}
            axes.annotate(str(number), (x, y), fontsize=10.5, color=INK, **label)
    _add_legend(axes)


def _draw_importances(axes: Axes, overview: Overview) -> None:
    shown = dict(list(overview.importances.items())[:_MOST_BARS])
    _dress(axes, f"importance for {overview.aim}", "share" if shown else "", "")
    if not shown:
        _say(axes, "too few finished trials to tell")
        return
    places = np.arange(len(shown))[::-1]
    bars = axes.barh(places, list(shown.values()), color=PALETTE[0], height=0.62)
    shares = [f"{100 * share:.0f} %" for share in shown.values()]
    axes.bar_label(bars, shares, padding=4, fontsize=11, color=INK)
    axes.set_yticks(places, [escaped(short_name(name)) for name in shown])
    axes.set_xlim(0, max(max(shown.values()) * 1.18, 0.05))
    axes.set_ylim(-0.6, max(len(shown), 4) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=FAINT, linewidth=1.0)


def _draw_slice(axes: Axes, name: str, overview: Overview) -> None:
    """Draw the first objective over a parameter; later trials are darker, the best are stars."""
    _dress(axes, short_name(name), "", overview.aim)
    views = [view for view in overview.done if name in view.used]
    places = _places(axes, [view.used[name] for view in views])
    points = _points(views)
    numbers, values = [number for number, _ in points], np.array([value for _, value in points])
    look: dict[str, Any] = {"s": 46, "cmap": "Blues", "edgecolor": PALETTE[0], "linewidth": 0.6}
    # The palest blue could not be seen.
    first, last = min(numbers, default=0), max(numbers, default=0)
    axes.scatter(places, values, c=numbers, vmin=first - 0.35 * (last - first + 1), **look)
    best = [place for place, number in enumerate(numbers) if number in overview.front]
    if best:
        look = {"s": 230, "marker": "*", "color": PALETTE[1], "edgecolor": "white", "zorder": 3}
        axes.scatter(places[best], values[best], linewidth=0.8, **look)


def _places(axes: Axes, drawn: Sequence[Any]) -> np.ndarray:
    """Return where values are on the horizontal axis: numbers, or categories side by side."""
    are_numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in drawn)
    distinct = len(set(map(repr, drawn)))
    # Few different numbers were chosen from a list: 32, 64, 128.
    if are_numbers and not (distinct <= _MOST_LABELS and distinct < len(drawn) / 2):
        places = np.array(drawn, dtype=float)
        if places.size and places.min() > 0 and places.max() / places.min() > _WIDE:
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", nbins=5)
        return places
    labels = [escaped(printable(value, _LONGEST_LABEL)) for value in drawn]
    pairs = sorted(zip(drawn, labels, strict=True), key=lambda pair: pair[not are_numbers])
    names = list(dict.fromkeys(label for _, label in pairs))
    axes.set_xticks(range(len(names)), names if len(names) <= _MOST_LABELS else [])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="x", labelcolor=INK, rotation=0 if len(names) <= 4 else 20)
    # Dots of one category are moved apart.
    apart = np.random.default_rng(0).uniform(-0.16, 0.16, size=len(drawn))
    return np.array([names.index(label) for label in labels], dtype=float) + apart

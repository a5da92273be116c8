"""The picture of a study: its history, learning curves, what matters, and where good values lie."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.analysis.style import DPI, FAINT, GREY, INK, PALETTE, save_picture
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import Direction
from rlzoo_plus.tuning.metrics import FOLLOWED, RUNGS
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from optuna.study import Study
    from optuna.trial import FrozenTrial

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


def dress(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Give a panel its titles and the look of all pictures."""
    axes.set_title(escaped(title), fontsize=14, color=INK, loc="left", pad=10)
    axes.set_xlabel(escaped(x_label), fontsize=12.5, color=INK, labelpad=6)
    axes.set_ylabel(escaped(y_label), fontsize=12.5, color=INK, labelpad=6)
    axes.tick_params(labelsize=11.5, colors=INK, length=4, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=1.0)
    axes.set_axisbelow(True)
    axes.margins(x=0.04, y=0.08)


def escaped(text: str) -> str:
    """Return text for a picture: a dollar would begin a formula."""
    return text.replace("$", r"\$")


def say(axes: Axes, text: str) -> None:
    """Write why a panel is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY, fontsize=12.5)
    axes.set_xticks([])
    axes.set_yticks([])


def add_legend(axes: Axes) -> None:
    """Add the legend below, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        look: dict[str, Any] = {"fontsize": 11, "labelcolor": INK, "frameon": False}
        place: dict[str, Any] = {
            "loc": "upper center",
            "bbox_to_anchor": (0.5, -0.17),
            "borderaxespad": 0.0,
        }
        axes.legend(handles, labels, ncols=3, columnspacing=1.2, handlelength=1.4, **place, **look)


# Numbers further apart than this are drawn over a logarithmic axis.
_WIDE = 30.0
_MOST_LABELS, _LONGEST_LABEL = 8, 14


def draw_slice(axes: Axes, name: str, views: Sequence[TrialView], front: Sequence[int]) -> None:
    """Draw the first objective over a parameter; later trials are darker.

    Args:
        axes: Where.
        name: The parameter.
        views: Trials that have values; those without the parameter are left out.
        front: Numbers of the best ones, which are marked.
    """
    drawn = [view for view in views if name in view.params and view.values]
    drawn_values = [view.params[name] for view in drawn]
    distinct = len(set(map(repr, drawn_values)))
    # Few different numbers were chosen from a list: 32, 64, 128.
    is_choice = distinct <= _MOST_LABELS and distinct < len(drawn) / 2
    if all(_is_number(value) for value in drawn_values) and not is_choice:
        places = np.array(drawn_values, dtype=float)
        if places.size and places.min() > 0 and places.max() / places.min() > _WIDE:
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", nbins=5)
    else:
        places = _categories(axes, drawn_values)
    values = np.array([view.values[0] for view in drawn if view.values])
    look: dict[str, Any] = {"s": 46, "cmap": "Blues", "edgecolor": PALETTE[0], "linewidth": 0.6}
    numbers = [view.number for view in drawn]
    # The palest blue could not be seen.
    lowest = min(numbers, default=0) - 0.35 * (
        max(numbers, default=0) - min(numbers, default=0) + 1
    )
    axes.scatter(places, values, c=numbers, vmin=lowest, zorder=2, **look)
    best = [i for i, view in enumerate(drawn) if view.number in front]
    if best:
        look = {"s": 230, "marker": "*", "color": PALETTE[1], "edgecolor": "white", "zorder": 3}
        axes.scatter(places[best], values[best], linewidth=0.8, **look)


def _categories(axes: Axes, values: Sequence[Any]) -> np.ndarray:
    """Give each value a place of its own; dots of one category are moved apart."""
    is_numbers = all(_is_number(value) for value in values)
    ordered = sorted(values) if is_numbers else sorted(values, key=_label)
    names = list(dict.fromkeys(_label(value) for value in ordered))
    axes.set_xticks(range(len(names)), names if len(names) <= _MOST_LABELS else [])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="x", labelcolor=INK, rotation=0 if len(names) <= 4 else 20)
    apart = np.random.default_rng(0).uniform(-0.16, 0.16, size=len(values))
    return np.array([names.index(_label(value)) for value in values], dtype=float) + apart


def _label(value: Any) -> str:
    text = printable(value, _LONGEST_LABEL)
    return escaped(text)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# With fewer, the answer is the luck of the draw.
FEWEST_TRIALS = 4


def importances(study: Study, objective: int = 0) -> dict[str, float]:
    """Return the share of each parameter in reaching good values, the largest first.

    Parameters that only some trials have count too. The method needs no random forest.

    Args:
        study: The study.
        objective: Which of its objectives, by position.

    Returns:
        Shares that sum to 1, by name; empty if there are fewer than `FEWEST_TRIALS` finished
        trials, or all of them have the same value.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    values = [
        trial.values[objective]
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if trial.values is not None
    ]
    if len(values) < FEWEST_TRIALS or len(set(values)) < 2:
        return {}
    # The evaluator takes low targets for good ones, whatever the study's direction.
    sign = 1.0 if study.directions[objective] is StudyDirection.MINIMIZE else -1.0

    def target(trial: FrozenTrial) -> float:
        found: Sequence[float] = trial.values or ()
        return sign * found[objective]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), target=target)
    return dict(sorted(found.items(), key=lambda item: -item[1]))

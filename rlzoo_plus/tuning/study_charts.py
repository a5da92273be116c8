"""Charts of a study: history, learning curves, Pareto front, importances, values, parallel lines.

A trial has the same mark in all of them: done, pruned, running, breaking a constraint, or best.
Pruned and running trials stand at the last value that they reported; failed ones are left out.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from rlzoo_plus.analysis.style import (
    FAINT,
    GREY,
    INK,
    PALETTE,
    dress,
    escaped,
    finish,
    new_figure,
    set_title,
)
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.tuning.objectives import RUNGS
from rlzoo_plus.tuning.stored_study import best_of, few_trials_text
from rlzoo_plus.tuning.study_scale import Scale, is_finite, scale_of_parameter
from rlzoo_plus.tuning.trials import TrialState, TrialView, key_of, view_of

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More of them would be too small to read.
MOST_SLICES, _MOST_LINES, _MOST_BARS = 4, 8, 12
_LONGEST_NAME = 24
# Below that range a logarithmic axis has too few powers of ten to be labelled with them.
_DECADES = 1000.0
_UNITS = {"training_time_s": "training time [s]", "steps_per_s": "environment steps/s"}
_DONE, _PRUNED, _RUNNING = "done", "pruned, at its last report", "running, at its last report"
_BROKEN, _BEST, _FRONT, _SO_FAR = "breaks a constraint", "best", "Pareto front", "best so far"
# Told apart by their marks, and the ends of lines by their style, in grey, too.
_MARKS: dict[str, dict[str, Any]] = {
    _DONE: {"marker": "o", "color": PALETTE[0], "markersize": 7, "alpha": 0.8},
    _PRUNED: {"marker": "x", "color": PALETTE[1], "markersize": 7, "markeredgewidth": 2},
    _RUNNING: {"marker": ">", "color": GREY, "markersize": 7, "markerfacecolor": "white"},
    _BROKEN: {"marker": "s", "color": GREY, "markersize": 7, "markerfacecolor": "white"},
    _BEST: {"marker": "*", "color": PALETTE[5], "markersize": 18, "markeredgecolor": INK},
}
_MARKS[_FRONT] = _MARKS[_BEST]
_BEST_LINE: dict[str, Any] = {"color": PALETTE[5], "linewidth": 2.6, "alpha": 1.0, "zorder": 3}
_BEST_LINE["path_effects"] = [withStroke(linewidth=4.4, foreground=INK)]
_LINES = {_DONE: "-", _PRUNED: "--", _RUNNING: ":", _BROKEN: "-.", _BEST: "-", _FRONT: "-"}


_Point = tuple[float | None, float | None]


@dataclass(frozen=True)
class Drawn:
    """What the charts of a study are made from."""

    title: str
    study: optuna.Study
    objectives: Sequence[str]  # Their names, in the order of a trial's values
    importances: Mapping[str, float] = field(default_factory=dict)  # Shares, the largest first

    @cached_property
    def views(self) -> list[TrialView]:
        """The trials by number."""
        found = (view_of(trial) for trial in self.study.get_trials(deepcopy=False))
        return sorted(found, key=lambda view: view.number)

    @property
    def done(self) -> list[TrialView]:
        """The trials that have values."""
        return [view for view in self.views if view.state is TrialState.DONE]

    @cached_property
    def marked(self) -> dict[int, str]:
        """What each trial that is drawn is marked as, by number."""
        several = len(self.objectives) > 1
        count = len(self.views) if several else 1
        best = {view.number for view in best_of(self.views, self.directions, count)}
        states = {TrialState.PRUNED: _PRUNED, TrialState.RUNNING: _RUNNING}
        found = {view.number: states[view.state] for view in self.views if view.state in states}
        for view in self.done:
            kept = (_FRONT if several else _BEST) if view.number in best else _DONE
            found[view.number] = kept if view.is_feasible else _BROKEN
        return found

    @property
    def directions(self) -> list[str]:
        """The direction of each objective: `maximize` or `minimize`."""
        return [direction.name.lower() for direction in self.study.directions]

    @cached_property
    def names(self) -> dict[str, str]:
        """How each key that was drawn is called in a plot, the most important first."""
        drawn = (key_of(name) for view in self.views for name in view.params)
        names = {key: short_name(key) for key in dict.fromkeys([*self.importances, *drawn])}
        if len(set(names.values())) < len(names):
            return {key: printable(key, 200) for key in names}
        return names

    @cached_property
    def scales(self) -> dict[str, str]:
        """The scale that a key's values were drawn on, as far as it is known: of an interval."""
        logs = {
            name: getattr(distribution, "log", None)
            for trial in self.study.get_trials(deepcopy=False)
            for name, distribution in trial.distributions.items()
        }
        found = {n: "log" if is_log else "linear" for n, is_log in logs.items() if is_log in (0, 1)}
        return {key_of(n): scale_of_parameter(n, scale) for n, scale in found.items()}

    def value(self, view: TrialView, place: int = 0) -> float | None:
        """Return a trial's value of an objective, None if it has no finite one."""
        values: Sequence[float] = view.values or ()
        if view.state in (TrialState.PRUNED, TrialState.RUNNING) and len(self.objectives) == 1:
            values = [v for v in view.intermediate.values() if is_finite(v)][-1:]
        return values[place] if place < len(values) and is_finite(values[place]) else None

    def label(self, place: int = 0) -> str:
        """Return how an objective is called on an axis."""
        name = self.objectives[place]
        return escaped(_UNITS.get(name, name.replace("_", " ")))


def short_name(name: str) -> str:
    """Return a parameter's name without `algo.hyperparams`, cut to a length."""
    text = printable(name.replace("algo.hyperparams.", ""), 200)
    return text if len(text) <= _LONGEST_NAME else "..." + text[-(_LONGEST_NAME - 3) :]


def charts_figure(drawn: Drawn, rows: Sequence[Sequence[str]]) -> Figure:
    """Return a page of charts, by their names in `CHARTS`, with one legend below them."""
    rows = [row for row in rows if row]
    is_single = [len(row) for row in rows] == [1]
    width, height = (10.0, 5.6) if is_single else (17.0, 5.0 * len(rows))
    figure = new_figure(escaped(drawn.title), width, height)
    grid = figure.add_gridspec(len(rows), 1)
    for number, row in enumerate(rows):
        widths = [CHARTS[kind].width for kind in row]
        places = grid[number, 0].subgridspec(1, len(row), width_ratios=widths)
        for column, kind in enumerate(row):
            n_axes = CHARTS[kind].count(drawn)
            cells = places[0, column].subgridspec(1, n_axes)
            panels = [figure.add_subplot(cells[0, place]) for place in range(n_axes)]
            for axes in panels:
                dress(axes, "", "", max(3, 6 // n_axes))
            set_title(panels[0], CHARTS[kind].title.format(drawn.label()))
            CHARTS[kind].draw(drawn, panels)
    return finish(figure)


def _draw_points(axes: Axes, drawn: Drawn, points: Mapping[int, _Point]) -> None:
    """Draw a mark for each trial, by number, whose point has both numbers; the best lie on top."""
    for order, (label, look) in enumerate(_MARKS.items()):
        marked = (point for n, point in points.items() if drawn.marked.get(n) == label)
        if shown := [point for point in marked if None not in point]:
            size = look["markersize"] * (0.6 if len(points) > 300 and order < 4 else 1.0)
            more = {"linestyle": "none", "label": label, "zorder": 3 + order, "markersize": size}
            axes.plot(*zip(*shown, strict=True), clip_on=False, **(look | more))


def _history(drawn: Drawn, panels: Sequence[Axes]) -> None:
    (axes,) = panels
    _draw_points(axes, drawn, {v.number: (v.number, drawn.value(v)) for v in drawn.views})
    kept = [view for view in drawn.done if view.is_feasible]
    if known := [(v.number, value) for v in kept if (value := drawn.value(v)) is not None]:
        extreme = max if drawn.directions[0] == "maximize" else min
        best = list(itertools.accumulate((value for _, value in known), extreme))
        x = [*(number for number, _ in known), drawn.views[-1].number]
        axes.step(x, [*best, best[-1]], where="post", color=INK, linewidth=1.4, label=_SO_FAR)
    failed = sum(view.state is TrialState.FAILED for view in drawn.views)
    lost = sum(drawn.value(view) is None for view in drawn.done)
    told = [f"{failed} failed"] * (failed > 0) + [f"{lost} without a finite value"] * (lost > 0)
    axes.set_xlabel("trial" + (f" ({' and '.join(told)}: not drawn)" if told else ""))
    axes.set_ylabel(drawn.label())
    axes.set_xlim(-0.6, len(drawn.views) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _curves(drawn: Drawn, panels: Sequence[Axes]) -> None:
    (axes,) = panels
    ends: dict[int, _Point] = {}
    last = 0
    for view in drawn.views:
        reports = {rung: v for rung, v in view.intermediate.items() if is_finite(v)}
        mark = drawn.marked.get(view.number)
        if not reports or mark is None:
            continue
        x = [100 * rung / RUNGS for rung in reports]
        ends[view.number], last = (x[-1], reports[max(reports)]), max(last, *reports)
        look: dict[str, Any] = {"linestyle": _LINES[mark], "color": _MARKS[mark]["color"]}
        look |= {"linewidth": 1.2, "alpha": 0.7 if len(drawn.views) <= 60 else 0.35}
        if mark == _BEST:
            look |= _BEST_LINE
        axes.plot(x, list(reports.values()), **look)
    _draw_points(axes, drawn, ends)
    axes.set_xlabel("share of a run [%]" + (", seed after seed" if last > RUNGS else ""))
    axes.set_ylabel(f"{drawn.label()} so far")


def _pareto(drawn: Drawn, panels: Sequence[Axes]) -> None:
    pairs = itertools.combinations(range(len(drawn.objectives)), 2)
    for axes, (first, second) in zip(panels, pairs, strict=False):
        points = {v.number: (drawn.value(v, first), drawn.value(v, second)) for v in drawn.views}
        _draw_points(axes, drawn, points)
        axes.set_xlabel(_aim(drawn, first))
        axes.set_ylabel(_aim(drawn, second))


def _aim(drawn: Drawn, place: int) -> str:
    return f"{drawn.label(place)}, {drawn.directions[place].replace('ize', 'ized')}"


def _importances(drawn: Drawn, panels: Sequence[Axes]) -> None:
    (axes,) = panels
    names, shares = drawn.names, list(drawn.importances.items())
    n_named = len(shares) if len(shares) <= _MOST_BARS + 1 else _MOST_BARS
    bars = {escaped(names[key]): share for key, share in shares[:n_named]}
    if rest := shares[n_named:]:
        bars[f"{len(rest)} others"] = sum(share for _, share in rest)
    axes.barh(list(bars), [100.0 * share for share in bars.values()], color=PALETTE[0])
    axes.set_ylim(max(len(bars), 4) - 0.5, -0.5)
    axes.grid(axis="x", color=FAINT)
    axes.grid(axis="y", visible=False)
    few = few_trials_text(len(drawn.done))
    axes.set_xlabel("importance [%]" + (f"\n{few}" if few else ""))


def _slices(drawn: Drawn, panels: Sequence[Axes]) -> None:
    for axes in panels[1:]:
        axes.sharey(panels[0])
        axes.tick_params(labelleft=False)
    keys = list(drawn.names)[: len(panels)]
    for axes, key in zip(panels, keys, strict=True):
        used = {v.number: v.used.get(key) for v in drawn.views if v.number in drawn.marked}
        scale = Scale.of(used.values(), drawn.scales.get(key))
        if scale.kind != "linear":
            axes.set_xscale(scale.kind)
        known = (v for v in drawn.views if v.number in used)
        points = {v.number: (scale.position(used[v.number]), drawn.value(v)) for v in known}
        _draw_points(axes, drawn, points)
        is_wide = scale.kind == "log" and scale.high / scale.low >= _DECADES
        if scale.categories or (scale.kind != "linear" and not is_wide):
            axes.set_xticks(*zip(*scale.ticks(), strict=True))
        if scale.kind != "linear":
            axes.xaxis.set_minor_formatter("")
        if scale.categories:
            axes.tick_params(axis="x", labelrotation=35)
            axes.set_xlim(-0.5, len(scale.categories) - 0.5)
        axes.margins(x=0.08)
        axes.set_xlabel(escaped(drawn.names[key]))
    panels[0].set_ylabel(drawn.label())


def _parallel(drawn: Drawn, panels: Sequence[Axes]) -> None:
    (axes,) = panels
    keys = list(drawn.names)[:_MOST_LINES]
    known = [(view, value) for view in drawn.views if (value := drawn.value(view)) is not None]
    scales = [Scale.of([value for _, value in known], "linear")]
    for key in keys:
        values = [view.used.get(key) for view, _ in known]
        scales.append(Scale.of(values, drawn.scales.get(key)))
    # From light to dark, so that it is read in grey; the best are dark, whatever the direction.
    colours = LinearSegmentedColormap.from_list("", ["#C9DDEC", PALETTE[0], "#00253D"])
    if drawn.directions[0] == "minimize":
        colours = colours.reversed()
    norm = Normalize(scales[0].low, scales[0].high)
    ends: dict[int, _Point] = {}
    for view, value in known:
        mark = drawn.marked[view.number]
        shown = [value, *(view.used.get(key) for key in keys)]
        heights = [s.share(s.position(each)) for s, each in zip(scales, shown, strict=True)]
        ends[view.number] = (0, heights[0])
        look: dict[str, Any] = {"color": colours(norm(value)), "linestyle": _LINES[mark]}
        look |= {"linewidth": 1.3, "alpha": 0.8 if len(known) <= 100 else 0.4, "zorder": 2}
        if mark in (_BEST, _FRONT):
            look |= _BEST_LINE
        elif mark != _DONE:
            look |= {"color": _MARKS[mark]["color"], "linewidth": 1.0, "alpha": 0.5, "zorder": 1}
        axes.plot(range(len(heights)), heights, **look)
    _draw_points(axes, drawn, ends)
    names = [drawn.label(), *(escaped(drawn.names[key]) for key in keys)]
    # A key is broken at its dots.
    lines = [textwrap.fill(name.replace(".", ". "), 18).replace(". ", ".") for name in names]
    axes.set_xticks(range(len(names)), lines)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(-0.45, len(names) - 0.5)
    axes.set_ylim(-0.06, 1.06)
    box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
    look = {"fontsize": 10.5, "color": INK, "va": "center", "bbox": box, "zorder": 9}
    for place, scale in enumerate(scales):
        axes.axvline(place, color=GREY, linewidth=1.0, zorder=1)
        # Left of the first axis, where the marks are.
        beside = {"xytext": (6, 0)} if place else {"xytext": (-12, 0), "ha": "right"}
        for position, text in scale.ticks():
            at = (place, scale.share(position))
            axes.annotate(text, at, textcoords="offset points", **look, **beside)
    if scales[0].low < scales[0].high:
        bar = axes.figure.colorbar(ScalarMappable(norm, colours), ax=axes, aspect=30, pad=0.01)
        bar.set_label(drawn.label(), fontsize=13, color=INK)
        bar.ax.tick_params(labelsize=11, colors=INK)


@dataclass(frozen=True)
class Chart:
    """A kind of chart."""

    title: str  # May have the first objective
    draw: Callable[[Drawn, Sequence[Axes]], None]
    width: float  # Against others in its row
    is_known: Callable[[Drawn], bool]  # Whether the study has something to draw
    count: Callable[[Drawn], int] = lambda _: 1  # Of axes beside each other


def _has_values(drawn: Drawn) -> bool:
    return any(drawn.value(view) is not None for view in drawn.views)


# By the names of Optuna's plots.
CHARTS = {
    "optimization_history": Chart("History of {}", _history, 1.0, _has_values),
    "intermediate_values": Chart(
        "Learning curves of the trials",
        _curves,
        1.0,
        lambda drawn: len(drawn.objectives) == 1 and any(v.intermediate for v in drawn.views),
    ),
    "pareto_front": Chart(
        "Pareto front",
        _pareto,
        1.6,
        lambda drawn: len(drawn.objectives) > 1 and bool(drawn.done),
        lambda drawn: 1 if len(drawn.objectives) == 2 else 3,
    ),
    "param_importances": Chart(
        "Importance for {}", _importances, 0.8, lambda drawn: bool(drawn.importances)
    ),
    "slice": Chart(
        "Each value and {}",
        _slices,
        1.6,
        lambda drawn: bool(drawn.names) and _has_values(drawn),
        lambda drawn: min(len(drawn.names), MOST_SLICES),
    ),
    "parallel_coordinate": Chart(
        "Values together",
        _parallel,
        1.0,
        lambda drawn: bool(drawn.names) and _has_values(drawn),
    ),
}
# The overview, row by row.
OVERVIEW_ROWS = (
    ("optimization_history", "intermediate_values", "pareto_front"),
    ("param_importances", "slice"),
    ("parallel_coordinate",),
)

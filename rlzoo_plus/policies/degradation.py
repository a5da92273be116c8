"""The report on robustness: a table, the ranking of several policies, and degradation curves."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.analysis.style import DPI, FAINT, INK, line_look, save_plot
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.policies.robustness import ENGINE, Point, Robustness, nominal_values, ranked

_COLUMNS = 4


def table(found: Robustness) -> str:
    """Return the points of one policy as lines."""
    rows = [("change", "mean return", "of nominal", "success")]
    rows += [_row(point, found.nominal) for point in (found.nominal, *found.points)]
    lines = aligned(rows, right=rows[0][1:])
    lines += [f"left out: {printable(n)}: {printable(w)}" for n, w in found.skipped.items()]
    worst = _row(found.worst, found.nominal)
    return "\n".join([*lines, f"worst case: {worst[0]}, mean return {worst[1]}, {worst[2]}"])


def ranking(found: Sequence[Robustness]) -> str:
    """Return several policies by their worst case, the best first."""
    rows = [("policy", "nominal", "worst", "worst case")]
    for one in ranked(list(found)):
        numbers = (f"{one.nominal.mean_return:.4g}", f"{one.worst.mean_return:.4g}")
        rows.append((printable(one.label), *numbers, str(one.worst)))
    return "\n".join(aligned(rows, right=("nominal", "worst")))


def plot(found: Sequence[Robustness], out: Path) -> Path:
    """Plot mean return over each change, with its standard error; a line for each policy.

    Raises:
        ConfigError: The file's name does not end in .png, or it cannot be written.
    """
    single = [p for one in found for p in one.points if len(p.change) == 1]
    names = list(dict.fromkeys(name for point in single for name in point.change))
    n_columns = min(_COLUMNS, max(len(names), 1))
    n_rows = max(1, ceil(len(names) / n_columns))
    size = (max(6.0, 3.4 * n_columns), 3.0 * n_rows + 0.4 + 0.25 * len(found))
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    nominal = nominal_values()
    for axes, name in zip(grid, names, strict=False):
        for number, one in enumerate(found):
            points = [p for p in one.points if list(p.change) == [name]]
            own = one.engine if name == ENGINE else nominal[name]
            line: list[tuple[Any, Point]] = [(p.change[name], p) for p in points]
            line = sorted([*line, (own, one.nominal)], key=lambda pair: pair[0])
            x, y = [value for value, _ in line], [p.mean_return for _, p in line]
            error = [np.std(p.returns) / np.sqrt(len(p.returns)) for _, p in line]
            look = line_look(number)
            axes.plot(x, y, markersize=4, linewidth=2, label=one.label, **look)
            low, high = np.subtract(y, error), np.add(y, error)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if name in nominal:
            axes.axvline(nominal[name], color=FAINT, linewidth=4, zorder=0)
        axes.set_title(name, fontsize=12, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for axes in grid[::n_columns]:
        axes.set_ylabel("mean return", fontsize=11, color=INK)
    if len(found) > 1 and names:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    return save_plot(figure, out)


def _row(point: Point, nominal: Point) -> tuple[str, str, str, str]:
    whole = nominal.mean_return
    # A share of a negative return says nothing.
    difference = f"{point.mean_return - whole:+.4g}"
    share = f"{100 * point.mean_return / whole:.0f}%" if whole > 0 else difference
    success = "-" if point.success_rate is None else f"{100 * point.success_rate:.0f}%"
    return str(point), f"{point.mean_return:.4g}", share, success

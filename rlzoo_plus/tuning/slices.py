"""The panel of one parameter: the value of each trial over what was drawn for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.analysis.style import INK, PALETTE
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.tuning.panels import escaped
from rlzoo_plus.tuning.trials import TrialView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

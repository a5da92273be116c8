"""The style of plots: size, fonts, colours and number formats, without global state.

A plot is laid out at the size of a screen, where labels have 14 points. Another style draws on a
wider or narrower sheet and scales that to the width of a column or slide, so that all kinds of
plots keep their proportions in it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Safe for colour-blind readers: Okabe and Ito (2008), without yellow, which is lost on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# What tells lines apart in grey: as the numbers of styles and of marks have no common divisor, no
# pair of them comes twice before the 29th line.
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, GREY, FAINT = "#222222", "#8A8A8A", "#E4E4E4"
DPI = 150
STEPS_LABEL = "environment steps"
# The same values give the same file.
_NO_DATE: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
_SIZE_IN, _PANEL_IN, _NARROWEST_IN, _LOWEST_IN = (9.0, 5.6), (5.2, 4.2), 3.2, 3.4
_TITLE, PANEL_TITLE, _LABEL, _TICKS, _LEGEND = 17, 15, 14, 12.5, 12
_TITLE_PAD, _LABEL_PAD, _W_PAD, _H_PAD = 14, 8, 0.14, 0.12
# A character of a legend is about 0.09 inch wide, its handle with the gaps 0.9 inch.
_CHARACTER_IN, _HANDLE_IN, _LINE_IN = 0.09, 0.9, 0.28


@dataclass(frozen=True)
class Style:
    """How large a figure and what is in it are."""

    width_in: float | None = None  # Of the figure in its file; None: what its panels need
    scale: float = 1.0  # Of fonts, lines and marks, against those on a screen
    has_title: bool = True  # Without, the caption is the title

    @property
    def sheet_in(self) -> float | None:
        """The width on which the plot is laid out before it is scaled."""
        return None if self.width_in is None else self.width_in / self.scale


SCREEN = Style()
STYLES = ("screen", "paper", "talk")
# Of a column and the page of IEEE's two-column template, and of NeurIPS' text.
WIDTHS_IN = {"ieee": 3.5, "ieee-wide": 7.16, "neurips": 5.5}


def style_of(name: str, width: str = "ieee") -> Style:
    """Return a style by its name; the width is that of `paper`."""
    if name == "paper":
        # Labels have 8 points.
        return Style(WIDTHS_IN[width], 8 / _LABEL, has_title=False)
    return Style(10.0, 1.5) if name == "talk" else SCREEN


def new_axes(
    title: str, y_label: str, x_label: str = STEPS_LABEL, style: Style = SCREEN
) -> tuple[Figure, Axes]:
    """Return a figure and its axes."""
    figure, (axes,) = new_grid(title, [""], y_label, x_label, style)
    return figure, axes


def new_grid(
    title: str,
    titles: Sequence[str],
    y_label: str,
    x_label: str = STEPS_LABEL,
    style: Style = SCREEN,
    beside_in: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and axes, one for each of some titles, at most four in a row.

    Numbers on the x axis are written the short way if its label is that of steps. Left of the axes,
    names take `beside_in`. `finish` it once all is drawn.
    """
    n_columns = min(len(titles), 4) if len(titles) != 4 else 2
    if style.sheet_in is not None:
        n_columns = min(n_columns, max(1, int(style.sheet_in / _NARROWEST_IN)))
    n_rows = ceil(len(titles) / n_columns)
    is_single = len(titles) == 1
    size = _SIZE_IN if is_single else _PANEL_IN
    width = style.sheet_in or size[0] * n_columns
    # Titles and labels take their part of a low row.
    height = max(_LOWEST_IN, min(size[1], width / n_columns * size[1] / size[0])) * n_rows
    figure = new_figure("" if is_single or not style.has_title else title, width, height)
    most = 8 if width / n_columns >= _SIZE_IN[0] else 5
    found = []
    for number, name in enumerate(titles):
        axes = figure.add_subplot(n_rows, n_columns, number + 1)
        shown, points = (title, _TITLE) if is_single else (name, PANEL_TITLE)
        if style.has_title or not is_single:
            set_title(axes, _wrapped(shown, width / n_columns - beside_in), points)
        is_low, is_left = number >= len(titles) - n_columns, number % n_columns == 0
        dress(axes, x_label if is_low else "", y_label if is_left else "", most)
        if x_label == STEPS_LABEL:
            axes.xaxis.set_major_formatter(lambda step, _: thousands(step))
        found.append(axes)
    return figure, found


def new_figure(title: str, width_in: float, height_in: float) -> Figure:
    """Return a figure without axes, whose title stands above all of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=_W_PAD, h_pad=_H_PAD)
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    if title:
        look: dict[str, Any] = {"color": INK, "fontweight": "bold", "x": 0.02, "ha": "left"}
        figure.suptitle(_wrapped(title, width_in), fontsize=_TITLE, **look)
    return figure


def set_title(axes: Axes, title: str, points: float = PANEL_TITLE) -> None:
    """Set the title of axes, at their left."""
    look: dict[str, Any] = {"color": INK, "fontweight": "bold"}
    axes.set_title(title, fontsize=points, loc="left", pad=_TITLE_PAD, **look)


def dress(axes: Axes, x_label: str, y_label: str, most_ticks: int = 5) -> None:
    """Give axes their labels and the look that all plots have."""
    axes.set_xlabel(x_label, fontsize=_LABEL, color=INK, labelpad=_LABEL_PAD)
    axes.set_ylabel(y_label, fontsize=_LABEL, color=INK, labelpad=_LABEL_PAD)
    axes.locator_params(axis="x", nbins=most_ticks, steps=[1, 2, 2.5, 5, 10])
    axes.tick_params(labelsize=_TICKS, colors=INK, length=4, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=1.0)
    axes.set_axisbelow(True)
    axes.margins(x=0.02, y=0.06)


def _wrapped(title: str, width_in: float) -> str:
    return textwrap.fill(title, max(20, int(6.5 * width_in)))


def escaped(text: str) -> str:
    """Return a text in which matplotlib sees no formula: a pair of dollar signs would be one."""
    return text.replace("$", r"\$")


def line_look(number: int) -> dict[str, Any]:
    """Return colour, line style and mark of the n-th line: each tells lines apart in grey, too."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": LINE_STYLES[number % len(LINE_STYLES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def sparse_marks(number: int, n_points: int) -> dict[str, Any]:
    """Return at which points of the n-th line its mark is drawn, so that marks lie apart."""
    if n_points < 3:
        return {}
    return {"markevery": (0.02 * (number % len(PALETTE)), 0.15)}


def finish(figure: Figure, style: Style = SCREEN) -> Figure:
    """Give a figure that is drawn its size in the file, and one legend for all axes below them."""
    _scale(figure, style.scale)
    shown: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    if not shown:
        return figure
    # Never above the axes: where nothing is drawn in one plot, a line runs in the next.
    room = figure.get_figwidth() / style.scale - 0.5
    labels = [textwrap.fill(label, int((room - _HANDLE_IN) / _CHARACTER_IN)) for label in shown]
    longest = max(len(line) for label in labels for line in label.splitlines())
    columns = int(room / (_CHARACTER_IN * longest + _HANDLE_IN))
    columns = max(1, min(len(labels), 6, columns))
    lines = ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    # The axes keep their height.
    figure.set_figheight(figure.get_figheight() + style.scale * (0.1 + _LINE_IN * lines))
    look: dict[str, Any] = {"fontsize": style.scale * _LEGEND, "labelcolor": INK}
    look |= {"handlelength": 3.6, "frameon": False, "ncols": columns}
    figure.legend(list(shown.values()), labels, loc="outside lower center", **look)
    return figure


def _scale(figure: Figure, scale: float) -> None:
    """Scale a figure with its fonts, lines and marks."""
    from matplotlib.text import Text

    if scale == 1.0:
        return
    width, height = figure.get_size_inches()
    figure.set_size_inches(scale * width, scale * height)
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=scale * _W_PAD, h_pad=scale * _H_PAD)
    texts: list[Any] = figure.findobj(Text)
    for text in texts:
        text.set_fontsize(scale * text.get_fontsize())
    for axes in figure.axes:
        axes.tick_params(labelsize=scale * _TICKS, length=scale * 4, pad=scale * 3.5)
        axes.tick_params(width=scale * 0.8, grid_linewidth=scale)
        for axis in (axes.xaxis, axes.yaxis):
            axis.labelpad *= scale
        for spine in axes.spines.values():
            spine.set_linewidth(scale * spine.get_linewidth())
        for line in axes.lines:
            line.set_linewidth(scale * line.get_linewidth())
            line.set_markersize(scale * line.get_markersize())
            line.set_markeredgewidth(scale * line.get_markeredgewidth())


def is_picture(out: Path) -> bool:
    """Return whether `save_plot` writes files with this suffix."""
    return out.suffix.lower().removeprefix(".") in _NO_DATE


def save_plot(figure: Figure, out: Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the file's suffix, in one step; return the file."""
    kind = out.suffix.lower().removeprefix(".")
    if kind not in _NO_DATE:
        raise ConfigError(
            f"{out}: plots are PNG, SVG or PDF files. Give a name that ends in .png, .svg or .pdf."
        )
    try:
        write_atomic(out, rendered(figure, kind))
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}. Set another one.") from error
    return out


def rendered(figure: Figure, kind: str) -> bytes:
    """Return a figure as `png`, `svg` or `pdf`."""
    from matplotlib import rc_context

    content = BytesIO()
    # Otherwise the ids in an SVG are random, and a PDF has fonts that journals refuse.
    with rc_context({"svg.hashsalt": "rlzoo-plus", "pdf.fonttype": 42}):
        figure.savefig(content, format=kind, dpi=DPI, metadata=_NO_DATE[kind])
    return content.getvalue()


def thousands(number: float) -> str:
    """Write a number of steps the short way: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:g}"

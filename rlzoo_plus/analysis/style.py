"""The style of plots: size, fonts, colours and number formats, without global state."""

from __future__ import annotations

from collections.abc import Sequence
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
LINE_STYLES = ("-", "--", ":", "-.")
INK, GREY, FAINT = "#222222", "#8A8A8A", "#E4E4E4"
DPI = 150
STEPS_LABEL = "environment steps"
# The same values give the same file.
_NO_DATE: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
_SIZE_IN = (9.0, 5.6)
_MOST_INSIDE, _LONGEST_INSIDE = 7, 36


def new_axes(title: str, y_label: str, x_label: str = STEPS_LABEL) -> tuple[Figure, Axes]:
    """Return a figure and its axes."""
    figure, (axes,) = new_grid(title, [""], y_label, x_label)
    return figure, axes


def new_grid(
    title: str, titles: Sequence[str], y_label: str, x_label: str = STEPS_LABEL
) -> tuple[Figure, list[Axes]]:
    """Return a figure and axes, one for each of some titles, at most four in a row.

    Numbers on the x axis are written the short way if its label is that of steps.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    n_columns = min(len(titles), 4) if len(titles) != 4 else 2
    n_rows = ceil(len(titles) / n_columns)
    width = _SIZE_IN[0] if n_columns == 1 else 5.2 * n_columns
    height = _SIZE_IN[1] if n_columns == 1 else 4.2 * n_rows
    layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    look: dict[str, Any] = {"color": INK, "fontweight": "bold"}
    if n_columns > 1 and title:
        figure.suptitle(title, fontsize=18, x=0.02, ha="left", **look)
    found = []
    for number, name in enumerate(titles):
        axes = figure.add_subplot(n_rows, n_columns, number + 1)
        shown, size = (title, 17) if n_columns == 1 else (name, 15)
        axes.set_title(shown, fontsize=size, loc="left", pad=14, **look)
        is_low, is_left = number >= len(titles) - n_columns, number % n_columns == 0
        axes.set_xlabel(x_label if is_low else "", fontsize=14, color=INK, labelpad=8)
        axes.set_ylabel(y_label if is_left else "", fontsize=14, color=INK, labelpad=8)
        if x_label == STEPS_LABEL:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: thousands(step)))
        most = 8 if n_columns == 1 else 5
        axes.xaxis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))
        axes.tick_params(labelsize=12.5, colors=INK, length=4, color=GREY)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
        axes.grid(axis="y", color=FAINT, linewidth=1.0)
        axes.set_axisbelow(True)
        axes.margins(x=0.02, y=0.06)
        found.append(axes)
    return figure, found


def escaped(text: str) -> str:
    """Return a text in which matplotlib sees no formula: a pair of dollar signs would be one."""
    return text.replace("$", r"\$")


def line_look(number: int) -> dict[str, Any]:
    """Return colour and line style of the n-th line; the styles change when the colours end."""
    style = LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)]
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": style}


def add_legend(*drawn: Axes) -> None:
    """Add one legend for some axes; below them where it would cover much of them."""
    shown: dict[str, Any] = {}
    for axes in drawn:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    if not shown:
        return
    labels, handles = list(shown), list(shown.values())
    look: dict[str, Any] = {"fontsize": 12, "labelcolor": INK, "borderpad": 0.6, "handlelength": 3}
    longest = max(len(label) for label in labels)
    figure = drawn[0].get_figure(root=True)
    is_crowded = len(labels) > _MOST_INSIDE or longest > _LONGEST_INSIDE
    if figure is not None and (is_crowded or len(drawn) > 1):
        # A character is about 0.1 inch wide.
        room = figure.get_figwidth() - 0.5
        columns = max(1, min(len(labels), 6, int(room / (0.1 * longest + 0.8))))
        # The axes keep their height.
        figure.set_figheight(figure.get_figheight() + 0.28 * ceil(len(labels) / columns))
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
    else:
        legend = drawn[0].legend(handles, labels, loc="best", **look)
    legend.get_frame().set(edgecolor="none", facecolor="white", alpha=0.85)


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
    # Otherwise the ids in an SVG are random.
    with rc_context({"svg.hashsalt": "rlzoo-plus"}):
        figure.savefig(content, format=kind, dpi=DPI, metadata=_NO_DATE[kind])
    return content.getvalue()


def thousands(number: float) -> str:
    """Write a number of steps the short way: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:g}"

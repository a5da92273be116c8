"""The style of plots: size, fonts, colours and number formats, without global state."""

from __future__ import annotations

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
_SIZE_IN = (9.0, 5.6)
_MOST_INSIDE, _LONGEST_INSIDE = 7, 36


def new_axes(title: str, y_label: str) -> tuple[Figure, Axes]:
    """Return a figure and its axes, over environment steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12)
    figure = Figure(figsize=_SIZE_IN, dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=17, color=INK, loc="left", pad=14, fontweight="bold")
    axes.set_xlabel("environment steps", fontsize=14, color=INK, labelpad=8)
    axes.set_ylabel(y_label, fontsize=14, color=INK, labelpad=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: thousands(step)))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=12.5, colors=INK, length=4, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=1.0)
    axes.set_axisbelow(True)
    axes.margins(x=0.02, y=0.06)
    return figure, axes


def line_look(number: int) -> dict[str, Any]:
    """Return colour and line style of the n-th line; the styles change when the colours end."""
    style = LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)]
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": style}


def add_legend(axes: Axes) -> None:
    """Add the legend, if there is one; below the axes where it would cover much of them."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    look: dict[str, Any] = {"fontsize": 12, "labelcolor": INK, "borderpad": 0.6}
    longest = max(len(label) for label in labels)
    figure = axes.get_figure(root=True)
    if figure is not None and (len(labels) > _MOST_INSIDE or longest > _LONGEST_INSIDE):
        columns = 1 if longest > 44 else 2 if longest > 22 else 3
        # The axes keep their height.
        figure.set_figheight(_SIZE_IN[1] + 0.28 * ceil(len(labels) / columns))
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
    else:
        legend = axes.legend(loc="best", **look)
    legend.get_frame().set(edgecolor="none", facecolor="white", alpha=0.85)


def save_plot(figure: Figure, out: Path) -> Path:
    """Write a figure as PNG in one step and return the file.

    Raises:
        ConfigError: The file's name does not end in .png, or it cannot be written.
    """
    if out.suffix.lower() != ".png":
        raise ConfigError(f"{out}: plots are PNG files. Give a name that ends in .png.")
    content = BytesIO()
    figure.savefig(content, format="png", dpi=DPI)
    try:
        write_atomic(out, content.getvalue())
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}. Set another one.") from error
    return out


def thousands(number: float) -> str:
    """Write a number of steps the short way: 500, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:g}"

"""How the panels of a study's picture look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlzoo_plus.analysis.style import FAINT, GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

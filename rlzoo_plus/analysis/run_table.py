"""A list of runs as text: the cells of each, and columns under each other."""

from __future__ import annotations

import os

from rlzoo_plus.analysis.runs import RunSummary
from rlzoo_plus.analysis.style import thousands
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable

COLUMNS = ("state", "algo", "env", "seed", "steps", "best", "final", "time", "path")
LONGEST_NAME = 60
RIGHT = ("seed", "steps", "best", "final", "time")


def cells(run: RunSummary) -> tuple[str, ...]:
    """Return what each of `COLUMNS` shows of a run, safe to print."""
    steps = "-" if run.steps is None else thousands(run.steps)
    total = "" if run.n_timesteps is None else f"/{thousands(run.n_timesteps)}"
    return (
        run.state,
        printable(run.algo or "-", LONGEST_NAME),
        printable(run.env or "-", LONGEST_NAME),
        "-" if run.seed is None else str(run.seed),
        steps + total,
        _number(run.best),
        _number(run.final),
        _duration(run.wall_time_s),
        printable(os.path.relpath(run.path), LONGEST_LINE),
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return (
        f"{value:,.0f}"
        if abs(value) >= 10_000
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.3g}"
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def aligned(table: list[tuple[str, ...]]) -> list[str]:
    """Return the rows, the head first, as lines with their columns under each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = zip(table[0], row, widths, strict=True)
        line = (c.rjust(width) if name in RIGHT else c.ljust(width) for name, c, width in cells)
        lines.append("  ".join(line).rstrip())
    return lines

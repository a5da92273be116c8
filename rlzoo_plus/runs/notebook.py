"""What a notebook shows of a run: the evaluations as a table and a curve, also while it trains."""

from __future__ import annotations

import logging
import math
import sys
import time
from html import escape
from typing import Any

from rlzoo_plus.analysis.series import evaluation_rows
from rlzoo_plus.artifacts.run_dir import RunDir

log = logging.getLogger(__name__)
_WIDTH, _HEIGHT, _MARGIN = 560, 200, 24
_SHOWN = ("step", "mean_return", "std_return", "success_rate")


def page(title: str, rows: list[dict[str, Any]]) -> str:
    """Return HTML with the curve of the mean return, and a table of the last evaluations."""
    parts = [f"<b>{escape(title)}</b>"]
    if rows:
        cells = ["".join(f"<th>{name}</th>" for name in _SHOWN)]
        cells += ["".join(f"<td>{_text(row.get(n))}</td>" for n in _SHOWN) for row in rows[-5:]]
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        parts += [f"<div>{_curve(rows)}</div>", f"<table>{table}</table>"]
    return "".join(parts)


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else escape(str(value))


def _curve(rows: list[dict[str, Any]]) -> str:
    found = [(row["step"], row.get("mean_return")) for row in rows]
    points = [(x, y) for x, y in found if isinstance(y, int | float) and math.isfinite(y)]
    if not points:
        return ""
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))

    def at(value: float, begin: float, end: float, length: int) -> float:
        return _MARGIN + (length - 2 * _MARGIN) * (value - begin) / ((end - begin) or 1.0)

    placed = [(at(x, left, right, _WIDTH), _HEIGHT - at(y, low, high, _HEIGHT)) for x, y in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in placed)
    texts = [(4, 14, "start", f"mean return, {high:.1f} at most"), (4, 196, "start", f"{low:.1f}")]
    texts += [(_WIDTH - 4, 196, "end", f"step {right:,}")]
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12">{text}</text>'
        for x, y, anchor, text in texts
    )
    return (
        f'<svg role="img" aria-label="learning curve" width="{_WIDTH}" height="{_HEIGHT}" '
        f'fill="currentColor"><polyline points="{line}" fill="none" stroke="currentColor" '
        f'stroke-width="1.5"/>{dots}{labels}</svg>'
    )


class LiveCurve:
    """The page of a run in training, in the output of a cell, where IPython's kernel runs.

    It reads what the run has written, at most once a second; the run knows nothing of it.
    """

    def __init__(self) -> None:
        ipython: Any = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        self._display = None if getattr(shell, "kernel", None) is None else ipython.display
        self._handle: Any = None
        self._read_at, self._shown = -math.inf, 0

    def show(self, run_dir: RunDir | None, title: str, *, is_last: bool = False) -> None:
        """Draw again if there are new evaluations."""
        now = time.monotonic()
        if self._display is None or run_dir is None or (now - self._read_at < 1.0 and not is_last):
            return
        self._read_at = now
        try:
            rows = evaluation_rows(run_dir)
            if len(rows) == self._shown:
                return
            self._shown, html = len(rows), self._display.HTML(page(title, rows))
            if self._handle is None:
                self._handle = self._display.display(html, display_id=True)
            else:
                self._handle.update(html)
        # A picture must not end the training, whatever a notebook's front end refuses.
        except Exception:
            log.debug("the curve is not drawn any more:", exc_info=True)
            self._display = None

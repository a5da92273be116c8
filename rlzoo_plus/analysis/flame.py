"""A flame graph: an SVG of nested functions, each as wide as the time spent in it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from xml.sax.saxutils import escape

_WIDTH, _ROW, _CHARACTER = 1600.0, 17.0, 6.6
# Narrower ones are left out [pixels].
_NARROWEST = 0.5


def flame_graph(times: Mapping[tuple[str, ...], float]) -> str:
    """Return an SVG; the outermost functions are at the top, and a name is shown where it fits.

    `times` says how long each stack of functions was seen [s], the outermost function first.
    """
    total = sum(times.values())
    rows: list[str] = []
    depth = _add_row(rows, "all", times, total, 0.0, 0) if total > 0 else 0
    height = (depth + 1) * _ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" '
            'font-family="monospace" font-size="11">',
            *rows,
            "</svg>\n",
        ]
    )


def _add_row(
    rows: list[str],
    name: str,
    times: Mapping[tuple[str, ...], float],
    total: float,
    left: float,
    depth: int,
) -> int:
    """Append a function and what it called, beginning at `left` [s]; return the deepest row."""
    spent = sum(times.values())
    width = _WIDTH * spent / total
    if width < _NARROWEST:
        return depth
    x, y = _WIDTH * left / total, depth * _ROW
    # The same function has the same colour in each graph.
    hue = zlib.crc32(name.encode()) % 45
    title = f"{name}: {spent:.2f} s, {spent / total:.1%}"
    rows.append(
        f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" '
        f'height="{_ROW - 1:g}" rx="1" fill="hsl({hue + 10},80%,65%)"/>'
    )
    shown = name[: int((width - 6) / _CHARACTER)]
    if len(shown) > 2:
        rows.append(f'<text x="{x + 3:.1f}" y="{y + _ROW - 5:g}">{escape(shown)}</text>')
    rows.append("</g>")
    called: dict[str, dict[tuple[str, ...], float]] = {}
    for stack, seconds in times.items():
        if stack:
            called.setdefault(stack[0], {})[stack[1:]] = seconds
    deepest = depth
    for function in sorted(called):
        deepest = max(deepest, _add_row(rows, function, called[function], total, left, depth + 1))
        left += sum(called[function].values())
    return deepest

"""A table of scores: a row for each variant and environment, as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from rlzoo_plus.analysis.comparison_report import decided_best
from rlzoo_plus.analysis.estimates import ENOUGH_SEEDS, Estimate, estimate, few_seeds_text, shown
from rlzoo_plus.analysis.scores import Side

FORMATS = ("md", "tex", "csv")
HEADS = ("environment", "variant", "seeds", "final (IQM, 95 %)", "best (IQM, 95 %)")
_PARTS = ("iqm", "low", "high", "lowest", "highest")
_TEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}

_Row = tuple[str, str, int, Estimate | None, Estimate | None]


def score_rows(sides: Sequence[Side]) -> list[_Row]:
    """Return environment, variant, seeds, and the final and best score of each row."""
    rows = []
    for env in dict.fromkeys(env for side in sides for env in side.runs):
        for side in (side for side in sides if env in side.runs):
            final, best = (estimate(side.scores(env, which)) for which in ("final", "best"))
            rows.append((env, side.name, len(side.runs[env]), final, best))
    return rows


def table(sides: Sequence[Side], kind: str) -> str:
    """Return the table as `md`, `tex` or `csv`; a final score is bold if it is decided best."""
    rows = score_rows(sides)
    if kind == "csv":
        return _csv(rows)
    best = {env: decided_best(sides, env) for env in dict.fromkeys(env for env, *_ in rows)}
    bold = "**{}**" if kind == "md" else r"\textbf{{{}}}"
    escape = markdown_cell if kind == "md" else _tex_text
    lines = []
    for env, name, n, final, top in rows:
        scores = [escape(shown(each, with_n=False)) for each in (final, top)]
        cells = [escape(env), escape(name), str(n), *scores]
        if name == best[env]:
            cells[3] = bold.format(cells[3])
        lines.append(cells)
    note = few_seeds_text([n for _, _, n, *_ in rows])
    if kind == "md":
        return "\n".join([*markdown_table(HEADS, lines), *(["", note] if note else [])]) + "\n"
    head, *body = [f"  {' & '.join(cells)} \\\\" for cells in (map(_tex_text, HEADS), *lines)]
    begin = [r"% \usepackage{booktabs}", *([f"% {note}"] if note else [])]
    begin += [r"\begin{tabular}{llrll}", r"  \toprule", head, r"  \midrule"]
    return "\n".join([*begin, *body, r"  \bottomrule", r"\end{tabular}", ""])


def _csv(rows: Sequence[_Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"{which}_{part}" for which in ("final", "best") for part in _PARTS]
    writer.writerow(["environment", "variant", "seeds", "few_seeds", *names])
    for env, name, n, *found in rows:
        numbers = [getattr(each, part, None) for each in found for part in _PARTS]
        writer.writerow([_cell(env), _cell(name), n, n < ENOUGH_SEEDS, *numbers])
    return text.getvalue()


def _cell(text: str) -> str:
    # A spreadsheet would run it as a formula.
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table of Markdown, whose cells are safe already."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def markdown_cell(text: str) -> str:
    """Return text that cannot end its cell or become markup."""
    for mark in "\\|*_<[`":
        text = text.replace(mark, f"\\{mark}")
    return text


def _tex_text(text: str) -> str:
    """Return text without LaTeX's commands."""
    return "".join(_TEX.get(c, c) for c in text)

"""A table of scores: a row for each variant and environment, as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

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
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}

_MINUS = re.compile(r"(?<![\w.)\]-])-(?=\d)")

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
    if kind == "tex":
        return _scores_in_tex(rows, best)
    lines = []
    for env, name, n, final, top in rows:
        scores = [markdown_cell(shown(each, with_n=False)) for each in (final, top)]
        if name == best[env]:
            scores[0] = f"**{scores[0]}**"
        lines.append([markdown_cell(env), markdown_cell(name), str(n), *scores])
    note = few_seeds_text([n for _, _, n, *_ in rows])
    return "\n".join([*markdown_table(HEADS, lines), *(["", note] if note else [])]) + "\n"


def _scores_in_tex(rows: Sequence[_Row], best: Mapping[str, str | None]) -> str:
    """Return the table for a paper: a group of rows for each environment, what is alike once."""
    counts = [n for _, _, n, *_ in rows]
    is_same = len(set(counts)) == 1
    groups: dict[str, list[list[str]]] = {}
    for env, name, n, *found in rows:
        scores = [tex_text(shown(each, with_n=False)) for each in found]
        if name == best[env]:
            scores[0] = rf"\textbf{{{scores[0]}}}"
        group = groups.setdefault(env, [])
        # An environment is named in the first of its rows.
        first = "" if group else tex_text(env)
        group.append([first, tex_text(name), *([] if is_same else [str(n)]), *scores])
    seeds = "1 seed" if counts[0] == 1 else f"{counts[0]} seeds"
    caption = f"Mean return of the final and the best evaluation: interquartile mean over {seeds}"
    if not is_same:
        caption = caption.removesuffix(f" {seeds}") + " $n$ seeds"
    if max(counts) >= ENOUGH_SEEDS:
        caption += r" [95\,\% bootstrap interval]"
    caption += "."
    if min(counts) < ENOUGH_SEEDS:
        caption += f" With fewer than {ENOUGH_SEEDS} seeds no interval is given."
    if any(best.values()):
        caption += (
            " Bold: higher than each other variant on the environment by a permutation test "
            r"(Holm's correction, $p \le 0.05$)."
        )
    heads = ["Environment", "Variant", *([] if is_same else ["$n$"]), "Final", "Best"]
    columns = "ll" + ("" if is_same else "r") + "rr"
    return tex_table(columns, heads, list(groups.values()), caption, "scores")


def tex_table(
    columns: str,
    heads: Sequence[str],
    groups: Sequence[Sequence[Sequence[str]]],
    caption: str,
    label: str,
) -> str:
    """Return a table of LaTeX with groups of rows, in the style of booktabs.

    Args:
        columns: How each is aligned, as `tabular` takes it.
        heads: The cells of the first row. All cells, and the caption, are LaTeX already.
        groups: Rows that belong together; there is a space between groups of several rows.
        caption: It stands above, where tables have it.
        label: The table is `tab:label`.
    """
    lines = [[_tex_row(cells) for cells in group] for group in groups if group]
    space = [r"    \addlinespace"] if any(len(group) > 1 for group in lines) else []
    body = [line for number, group in enumerate(lines) for line in [*space * (number > 0), *group]]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            _tex_row(heads),
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex_row(cells: Sequence[str]) -> str:
    # After the end of a row, LaTeX would read a bracket or a star as an option.
    start = "{}" if cells[0].startswith(("[", "*")) else ""
    return rf"    {start}{' & '.join(cells)} \\"


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


def tex_text(text: str) -> str:
    """Return text without LaTeX's commands; a minus is one, and no hyphen."""
    return _MINUS.sub("$-$", "".join(_TEX.get(c, c) for c in text))

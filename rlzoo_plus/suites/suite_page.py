"""A page of Markdown on a suite, made from its results alone."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence

from rlzoo_plus.analysis.estimates import ENOUGH_SEEDS, estimate
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.analysis.style import thousands
from rlzoo_plus.analysis.tables import markdown_cell, markdown_table
from rlzoo_plus.suites.suite_file import Cell, Suite
from rlzoo_plus.suites.suite_results import Result, Results, SideBySide, of_cell

_HEADS = (
    *("cell", "steps", "seeds", "mean return", "to reach", "result", "minutes"),
    *("minutes to the score", "fast"),
)


def page(suite: Suite, results: Results, command: str) -> str:
    """Return the page; `command` is what makes it again."""
    done = rows_of(suite, results)
    parts = [f"# Benchmark: {suite.name}", f"`{command}`", *map(_filled, _about(suite))]
    if done:
        parts += [_filled(_summary(suite, done)), table(done)]
    noted = [cell for cell in _in_order(suite) if cell.note]
    notes = [_filled(f"- {cell.name}: {markdown_cell(cell.note)}", "  ") for cell in noted]
    parts += ["\n".join(notes)] if notes else []
    have_run = {_pair(cell) for cell, _ in done}
    waiting = [cell for cell in suite.chosen([]) if _pair(cell) not in have_run]
    if waiting:
        parts.append(_filled(f"Not run yet: {_by_algorithm(waiting)}."))
    if results.side_by_side:
        pairs = list(results.side_by_side.values())
        parts += ["## Minutes to the score, side by side", _side_by_side(pairs)]
    return "\n\n".join(parts) + "\n"


def rows_of(suite: Suite, results: Results) -> list[tuple[Cell, Sequence[Result]]]:
    """Return the cells that have results; one with other values follows its plain cell."""
    return [(cell, runs) for cell in _in_order(suite) if (runs := of_cell(results, cell))]


def _in_order(suite: Suite) -> list[Cell]:
    place = {pair: at for at, pair in enumerate(dict.fromkeys(map(_pair, suite.cells)))}
    return sorted(suite.cells, key=lambda cell: place[_pair(cell)])


def table(done: Sequence[tuple[Cell, Sequence[Result]]]) -> str:
    """Return a row for each cell that has results."""
    return "\n".join(markdown_table(_HEADS, [_row(cell, runs) for cell, runs in done]))


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _about(suite: Suite) -> list[str]:
    policy = "last policy" if suite.policy == "final" else "policy of the best evaluation"
    parts = [
        f"The {policy} of each seed plays held-out episodes, deterministically. The mean return is "
        "the interquartile mean over the seeds, with the lowest and the highest of them; from "
        f"{ENOUGH_SEEDS} seeds on with its 95 % bootstrap interval."
    ]
    if any(cell.mean is not None for cell in suite.cells):
        source = f": {markdown_cell(suite.source)}" if suite.source else ""
        source += f", {markdown_cell(suite.licence)} licence" if suite.licence else ""
        parts.append(
            f"To reach is the published mean +- standard deviation over the episodes of one agent"
            f"{source}. The result says whether the mean return is inside this interval, above or "
            "below it. The score in the column of minutes is 90 % of the published mean."
        )
    if any(cell.mean is None for cell in suite.cells):
        parts.append(
            "A cell without a published score is to reach the return from which on its environment "
            "is solved, which is its score as well."
        )
    parts.append(
        "Minutes are wall time of the training, the median over the seeds; those to the score are "
        "the time until an evaluation first reaches it. Fast is the run's key `fast`: `true` and "
        "`bfloat16` round differently from Stable-Baselines3, `exact` does not."
    )
    return parts


def _summary(suite: Suite, done: Sequence[tuple[Cell, Sequence[Result]]]) -> str:
    """Return how many cells have run and reached their score; the better of variants counts."""
    wanted = {_pair(cell) for cell in suite.cells}
    verdicts: dict[str, set[str]] = {}
    for cell, runs in done:
        verdicts.setdefault(_pair(cell), set()).add(_verdict(cell, runs))
    text = f"{len(verdicts)} of {counted(len(wanted), 'cell')} have run"
    if all(cell.mean is None for cell in suite.cells):
        return f"{text}."
    rest, counts = list(verdicts.values()), []
    for word, what in (("above", "above the published interval"), ("inside", "inside it")):
        counts.append(f"{sum(word in each for each in rest)} {what}")
        rest = [each for each in rest if word not in each]
    below = sum("below" in each for each in rest)
    return f"{text}: {counts[0]}, {counts[1]}, {below} below."


def _pair(cell: Cell) -> str:
    """Return what a cell counts as: one with other values is one with its plain cell."""
    return f"{cell.algo}:{cell.env}" if cell.named_only else cell.name


def _row(cell: Cell, runs: Sequence[Result]) -> list[str]:
    steps = sorted({run.n_timesteps for run in runs})
    shown_steps = [thousands(count) for count in dict.fromkeys((steps[0], steps[-1]))]
    fast = dict.fromkeys("exact" if run.fast is False else str(run.fast).lower() for run in runs)
    cells = [
        cell.name,
        " to ".join(shown_steps),
        str(len(runs)),
        _score(runs),
        _to_reach(cell, runs),
        _verdict(cell, runs),
        _minutes([run.minutes for run in runs]),
        _minutes_to_score(cell, runs),
        ", ".join(fast),
    ]
    return [markdown_cell(text) for text in cells]


def _score(runs: Sequence[Result]) -> str:
    found = estimate([run.mean for run in runs])
    assert found is not None
    text = _number(found.iqm)
    if found.low is not None and found.high is not None:
        return f"{text} [{_number(found.low)}, {_number(found.high)}]"
    if len(runs) > 1:
        text += f" ({_number(found.lowest)} to {_number(found.highest)})"
    return text


def _to_reach(cell: Cell, runs: Sequence[Result]) -> str:
    if cell.mean is not None and cell.std is not None:
        return f"{_number(cell.mean)} +- {_number(cell.std)}"
    solved = runs[0].solved_return
    return "-" if solved is None else _number(solved)


def _verdict(cell: Cell, runs: Sequence[Result]) -> str:
    if cell.mean is not None:
        found = estimate([run.mean for run in runs])
        return "-" if found is None else cell.verdict(found.iqm)
    known = [run for run in runs if run.solved_return is not None]
    solved = sum(run.mean >= (run.solved_return or 0.0) for run in known)
    return f"{solved} of {len(known)} solved" if known else "-"


def _minutes_to_score(cell: Cell, runs: Sequence[Result]) -> str:
    targets = [(cell.target if cell.target is not None else run.solved_return) for run in runs]
    known = [
        (run, target)
        for run, target in zip(runs, targets, strict=True)
        if target is not None and run.has_clock()
    ]
    if not known:
        return "-"
    found = [m for run, target in known if (m := run.reached(target)) is not None]
    if not found:
        return "not reached"
    text = _minutes(found)
    return text if len(found) == len(known) else f"{text} ({len(found)} of {len(known)} seeds)"


def _minutes(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _by_algorithm(cells: Sequence[Cell]) -> str:
    names: dict[str, list[str]] = {}
    for cell in cells:
        names.setdefault(cell.algo, []).append(cell.name.partition(":")[2])
    return "; ".join(f"{algo} on {', '.join(envs)}" for algo, envs in names.items())


def _side_by_side(pairs: Sequence[SideBySide]) -> str:
    tools = sorted({tool for pair in pairs for tool in pair.minutes})
    rows = []
    for pair in pairs:
        minutes = [_reached_after(pair, tool) if tool in pair.minutes else "-" for tool in tools]
        rows.append([pair.cell, _number(pair.target), str(pair.cores), *minutes])
    heads = ("cell", "score", "cores", *tools)
    lines = markdown_table(heads, [[markdown_cell(text) for text in row] for row in rows])
    cells: dict[str, list[str]] = {}
    for pair in pairs:
        cells.setdefault(pair.about, []).append(pair.cell)
    for about, names in cells.items():
        which = f"{', '.join(names)}: " if len(cells) > 1 else ""
        lines += [f"\n{markdown_cell(which + about)}"] if about else []
    return "\n".join(lines)


def _reached_after(pair: SideBySide, tool: str) -> str:
    minutes, steps = pair.minutes[tool], pair.steps.get(tool)
    if minutes is None:
        return "not reached"
    return f"{minutes:.3g}" if steps is None else f"{minutes:.3g} ({thousands(steps)} steps)"

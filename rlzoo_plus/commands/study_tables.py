"""What the terminal shows of a study: its settings, its trials, its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.sweeps.table import duration
from rlzoo_plus.tuning.metrics import RUNGS
from rlzoo_plus.tuning.study_report import (
    StudyReport,
    best_table,
    counts,
    number_text,
    value_text,
)
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlzoo_plus.tuning.stored_study import KnownStudy

JOURNAL = "journal.log"
# More columns than this do not fit beside the values.
_MOST_PARAMS = 8
_MOST_FAILED = 20


def print_settings(stored: KnownStudy, views: Sequence[TrialView], console: Console) -> None:
    """Print what a study is for, how far it is, and where it is kept."""
    hpo = stored.hpo
    numbers = ", ".join(f"{n} {state}" for state, n in counts(views).items())
    seeds = "" if hpo.seeds == 1 else f", {hpo.seeds} seeds each"
    lines = {
        "aim": ", ".join(f"{how} {name}" for name, how in hpo.objectives.items()),
        "subject to": ", ".join(hpo.constraints),
        "trials": f"{numbers or 'none yet'} (of {hpo.n_trials}{seeds})",
        "search": f"sampler {hpo.sampler}, pruner {hpo.pruner}, seed {hpo.seed}",
        "fixed": command_line([*stored.config_options, *stored.base]),
        "storage": storage_text(stored),
        "dashboard": dashboard_command(stored),
    }
    console.print(f"study {printable(stored.folder, LONGEST_LINE)}", markup=False, style="bold")
    for name, text in lines.items():
        if text:
            console.print(f"  {name:<13}{printable(text, LONGEST_LINE)}", markup=False)


def storage_text(stored: KnownStudy) -> str:
    """Return where the trials are kept."""
    return str(stored.folder / JOURNAL) if stored.storage == "journal" else stored.storage


def dashboard_command(stored: KnownStudy) -> str:
    """Return the command that shows a study in a browser."""
    where = storage_text(stored)
    if stored.storage != "journal":
        # SQLAlchemy would look for another driver.
        where = where.replace("postgresql://", "postgresql+psycopg://", 1)
    return command_line(["optuna-dashboard", where]) + "   (pip install optuna-dashboard)"


def trials_table(views: Sequence[TrialView], objectives: Sequence[str]) -> Table:
    """Return trials with what they gave and what was drawn for them."""
    from rich.text import Text

    names = list(dict.fromkeys(name for view in views for name in view.params))[:_MOST_PARAMS]
    short = [_short(name) for name in names]
    table = _table(["trial", "state", *objectives, "time", *short])
    for view in views:
        values = view.values or ()
        metrics = [number_text(v) for v in values] if values else ["-"] * len(objectives)
        drawn = [value_text(view.params[n]) if n in view.params else "-" for n in names]
        took = "-" if view.duration_s is None else duration(view.duration_s)
        state = str(view.state) if view.is_feasible else "breaks a constraint"
        cells = [str(view.number), state, *metrics, took, *drawn]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def print_running(views: Sequence[TrialView], console: Console) -> None:
    """Say which trials run, and how far they are."""
    for view in views:
        if view.state is not TrialState.RUNNING:
            continue
        rung = max(view.intermediate, default=0)
        last = f", last evaluation {number_text(view.intermediate[rung])}" if rung else ""
        share = f"{100 * rung // RUNGS} % of a run" if rung else "no evaluation yet"
        owner = f" ({printable(view.owner, 80)})" if view.owner else ""
        console.print(f"running: trial {view.number}{owner}: {share}{last}", markup=False)


def print_ended(views: Sequence[TrialView], console: Console) -> None:
    """Say why trials failed, a line each."""
    failed = [view for view in views if view.state is TrialState.FAILED]
    for view in failed[-_MOST_FAILED:]:
        reason = printable(view.reason)
        console.print(f"failed: trial {view.number}: {reason}", markup=False, style="red")


def print_report(report: StudyReport, console: Console) -> None:
    """Print the best trials: the metric they were chosen by, and what it is on fresh seeds."""
    from rich.text import Text

    heads, *rows = best_table(report, "retrained (IQM)")
    table = _table(heads)
    for cells in rows:
        table.add_row(*map(Text, cells))
    console.print()
    console.print(table)


def importance_table(shares: dict[str, float]) -> Table:
    """Return parameters with their shares, the largest first."""
    from rich.text import Text

    table = _table(["value", "share", ""])
    for name, share in shares.items():
        bar = "█" * round(30 * share)
        table.add_row(Text(_short(name)), Text(f"{100 * share:.1f} %"), Text(bar))
    return table


def _short(name: str) -> str:
    """Return a parameter's name without what goes without saying."""
    return printable(name).replace("algo.hyperparams.", "")


def _table(heads: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in heads:
        table.add_column(Text(printable(name)))
    return table

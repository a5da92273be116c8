"""What a study prints: its settings, its trials while they run, its tables, its report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.sweeps.sweep_view import LiveView, SweepView, progress_cells, progress_table
from rlzoo_plus.tuning.objectives import RUNGS
from rlzoo_plus.tuning.study_report import (
    StudyReport,
    best_table,
    counts_text,
    number_text,
    param_text,
)
from rlzoo_plus.tuning.trials import COUNTED, TrialState, TrialView

if TYPE_CHECKING:
    from rlzoo_plus.sweeps.launchers.launcher import Launcher
    from rlzoo_plus.tuning.stored_study import KnownStudy
    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import StudyPlan
    from rlzoo_plus.tuning.tuner import Tuner

# More columns than this do not fit next to the values.
_MOST_PARAMS = 8
_MOST_FAILED = 20
_READ_AGAIN_S = 2.0
# The trial has all of it: `study show` and the report print it.
_LONGEST_REASON = 160


class TuningView(LiveView):
    """What is shown of a study while its trials run."""

    def __init__(self, console: Console, plan: StudyPlan, study: Study, *, is_live: bool) -> None:
        self.console, self.plan, self.study = console, plan, study
        self._is_live = is_live and console.is_terminal
        self._started = time.monotonic()
        self._read = float("-inf")
        self._views: list[TrialView] = []
        self._n_ended = 0

    def __enter__(self) -> TuningView:
        if self._is_live:
            self.start_live(self.console)
        return self

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line."""
        self.console.print(text, markup=False, style=style)

    def show(self, report: StudyReport) -> None:
        """Print the best trials: the metric they were chosen by, and what it is on fresh seeds."""
        heads, *rows = best_table(report, "fresh seeds (IQM)")
        self.console.print()
        self.console.print(_table(heads, rows))

    def of_jobs(self, n_jobs: int, launcher: Launcher) -> SweepView:
        """Return what shows the runs on fresh seeds."""
        view = SweepView(lambda: self.console)
        view.expect(n_jobs, launcher)
        return view

    def ended(self, number: int, state: TrialState, reason: str) -> None:
        """Print how a trial ended."""
        self._n_ended += 1
        self._views = self.study.trials()
        view = next(view for view in self._views if view.number == number)
        head = f"[{_n_over(self._views)}/{self.plan.hpo.n_trials}] trial {number}"
        color = {TrialState.FAILED: "red", TrialState.PRUNED: "yellow"}.get(state)
        self.say(f"{head}: {self._outcome(view, reason)}", color)

    def tick(self, tuner: Tuner) -> None:
        """Print what happened, and draw the table again if it is time."""
        for note in tuner.notes:
            self.say(f"note: {note}")
        tuner.notes.clear()
        self.draw(lambda: self._table(tuner))

    def _outcome(self, view: TrialView, reason: str) -> str:
        reason = printable(reason, _LONGEST_REASON)
        if view.state is TrialState.FAILED:
            return f"failed: {reason} ({self.plan.folder / view.folder})"
        took = "" if view.duration_s is None else f" in {duration(view.duration_s)}"
        if view.state is TrialState.PRUNED:
            return f"pruned{took}: {reason}"
        names = self.plan.hpo.objectives
        pairs = zip(names, view.values or (), strict=False)
        shown = ", ".join(f"{name} {value:.6g}" for name, value in pairs)
        several = len(names) > 1
        best = self.study.best(len(self._views) if several else 1)
        praise = "on the Pareto front so far" if several else "the best so far"
        mark = f", {praise}" if view.number in {each.number for each in best} else ""
        broken = "" if view.is_feasible else ", breaks a constraint"
        return f"{shown}{took}{mark}{broken}"

    def _table(self, tuner: Tuner) -> Group:
        now = time.monotonic()
        if now - self._read >= _READ_AGAIN_S:
            self._read, self._views = now, self.study.trials()
        table = progress_table("trial")
        for trial in tuner.running:
            table.add_row(str(trial.number), *progress_cells(trial.job.config, trial.progress))
        return Group(Text(self._headline(), style="bold"), table)

    def _headline(self) -> str:
        value = ""
        for best in self.study.best(1):
            value = f"; best {(best.values or (0.0,))[0]:.6g} (trial {best.number})"
        left, eta = self.plan.hpo.n_trials - _n_over(self._views), ""
        if self._n_ended and left > 0:
            rate = (time.monotonic() - self._started) / self._n_ended
            eta = f"; about {duration(rate * left)} left"
        return f"{self.plan.hpo.n_trials} trials: {counts_text(self._views)}{value}{eta}"


def _n_over(views: Sequence[TrialView]) -> int:
    """Return how many of the study's trials have ended."""
    return sum(v.state in COUNTED and v.state is not TrialState.RUNNING for v in views)


def print_settings(stored: KnownStudy, views: Sequence[TrialView], console: Console) -> None:
    """Print what a study is for, how far it is, and where it is stored."""
    hpo = stored.hpo
    seeds = "" if hpo.seeds == 1 else f", {hpo.seeds} seeds each"
    dashboard = command_line(["optuna-dashboard", stored.place_for_dashboard])
    lines = {
        "aim": ", ".join(f"{how} {name}" for name, how in hpo.objectives.items()),
        "subject to": ", ".join(hpo.constraints),
        "trials": f"{counts_text(views)} (of {hpo.n_trials}{seeds})",
        "search": f"sampler {hpo.sampler}, pruner {hpo.pruner}, seed {hpo.seed}",
        "fixed": command_line([*stored.config_options, *stored.base]),
        "storage": stored.place,
        "dashboard": f"{dashboard}   (pip install optuna-dashboard)",
    }
    console.print(f"study {printable(stored.folder, LONGEST_LINE)}", markup=False, style="bold")
    for name, text in lines.items():
        if text:
            console.print(f"  {name:<13}{printable(text, LONGEST_LINE)}", markup=False)


def trials_table(views: Sequence[TrialView], objectives: Sequence[str]) -> Table:
    """Return trials with their values and the parameters that were drawn for them."""
    names = list(dict.fromkeys(name for view in views for name in view.used))[:_MOST_PARAMS]
    rows = [
        [
            str(view.number),
            str(view.state) if view.is_feasible else "breaks a constraint",
            *([number_text(value) for value in view.values or ()] or ["-"] * len(objectives)),
            "-" if view.duration_s is None else duration(view.duration_s),
            *(param_text(view, name) for name in names),
        ]
        for view in views
    ]
    return _table(["trial", "state", *objectives, "time", *map(_short, names)], rows)


def print_running(views: Sequence[TrialView], console: Console) -> None:
    """Print which trials run, and how far they are."""
    for view in views:
        if view.state is not TrialState.RUNNING:
            continue
        rung = max(view.intermediate, default=0)
        last = f", last evaluation {number_text(view.intermediate[rung])}" if rung else ""
        share = f"{100 * rung // RUNGS} % of a run" if rung else "no evaluation yet"
        owner = f" ({printable(view.owner, 80)})" if view.owner else ""
        console.print(f"running: trial {view.number}{owner}: {share}{last}", markup=False)


def print_ended(views: Sequence[TrialView], console: Console) -> None:
    """Print why trials failed, a line each."""
    failed = [view for view in views if view.state is TrialState.FAILED]
    for view in failed[-_MOST_FAILED:]:
        reason = printable(view.reason)
        console.print(f"failed: trial {view.number}: {reason}", markup=False, style="red")


def importance_table(shares: dict[str, float]) -> Table:
    """Return parameters with their shares, the largest first."""
    rows = [
        [_short(n), f"{100 * share:.1f} %", "█" * round(30 * share)] for n, share in shares.items()
    ]
    return _table(["value", "share", ""], rows)


def _short(name: str) -> str:
    return printable(name).replace("algo.hyperparams.", "")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in heads:
        table.add_column(Text(printable(name)))
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table

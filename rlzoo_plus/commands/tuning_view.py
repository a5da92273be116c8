"""The terminal while a study runs: a table, or a line for each trial that has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.console import start_live
from rlzoo_plus.commands.study_tables import print_report
from rlzoo_plus.sweeps.table import brief, duration
from rlzoo_plus.sweeps.terminal import SweepView
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.trials import COUNTED, TrialState, TrialView
from rlzoo_plus.tuning.tuner import Progress

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.tuning.study_report import StudyReport

_REDRAW_S = 0.5
_COLUMNS = (("trial", 5), ("seed", 5), ("steps", 11), ("steps/s", 7), ("left", 7), ("return", 7))
_READ_AGAIN_S = 2.0
# The trial keeps all of it: `study show` and the report have it.
_LONGEST_REASON = 160


class TuningView:
    """What is shown of a study while its trials run."""

    def __init__(self, console: Console, plan: StudyPlan, study: Study, *, is_live: bool) -> None:
        self.console, self.plan, self.study = console, plan, study
        self._live: Live | None = None
        self._is_live = is_live and console.is_terminal
        self._started = time.monotonic()
        self._drawn = self._read = float("-inf")
        self._views: list[TrialView] = []
        self._n_ended = 0

    def __enter__(self) -> TuningView:
        if self._is_live:
            self._live = start_live(self.console)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line."""
        self.console.print(text, markup=False, style=style)

    def show(self, report: StudyReport) -> None:
        """Print the best trials beside what they gave on fresh seeds."""
        print_report(report, self.console)

    def of_jobs(self, n_jobs: int, launcher: Launcher) -> SweepView:
        """Return what shows the runs on fresh seeds."""
        view = SweepView(lambda: self.console)
        view.expect(n_jobs, launcher)
        return view

    def ended(self, number: int, state: TrialState, reason: str) -> None:
        """Say how a trial ended."""
        self._n_ended += 1
        self._views = self.study.trials()
        view = next(view for view in self._views if view.number == number)
        over = [v for v in self._views if v.state in COUNTED and v.state is not TrialState.RUNNING]
        head = f"[{len(over)}/{self.plan.hpo.n_trials}] trial {number}"
        colour = {TrialState.FAILED: "red", TrialState.PRUNED: "yellow"}.get(state)
        self.console.print(f"{head}: {self._outcome(view, reason)}", markup=False, style=colour)

    def tick(self, progress: Progress) -> None:
        """Tell what happened, and draw the table again if it is time."""
        for note in progress.notes:
            self.console.print(f"note: {note}", markup=False)
        progress.notes.clear()
        now = time.monotonic()
        if self._live is None or now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        if now - self._read >= _READ_AGAIN_S:
            self._read, self._views = now, self.study.trials()
        self._live.update(self._table(progress), refresh=True)

    def _outcome(self, view: TrialView, reason: str) -> str:
        reason = printable(reason, _LONGEST_REASON)
        if view.state is TrialState.FAILED:
            return f"failed: {reason} ({self.plan.folder / view.folder})"
        took = "" if view.duration_s is None else f" in {duration(view.duration_s)}"
        if view.state is TrialState.PRUNED:
            return f"pruned{took}: {reason}"
        names = list(self.plan.hpo.objectives)
        shown = ", ".join(
            f"{name} {value:.6g}" for name, value in zip(names, view.values or (), strict=False)
        )
        several = len(names) > 1
        best = self.study.best(len(self._views) if several else 1)
        praise = "on the Pareto front so far" if several else "the best so far"
        mark = f", {praise}" if view.number in {each.number for each in best} else ""
        broken = "" if view.is_feasible else ", breaks a constraint"
        return f"{shown}{took}{mark}{broken}"

    def _table(self, progress: Progress) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        # Wide enough from the beginning, so that the columns do not jump.
        for name, width in _COLUMNS:
            table.add_column(name, no_wrap=True, min_width=width)
        total = self.plan.trial_timesteps
        for trial in progress.running:
            now = trial.progress
            left = now.left_s(total)
            table.add_row(
                str(trial.number),
                str(trial.job.config.seed),
                f"{brief(now.steps)}/{brief(total)}",
                "-" if now.rate is None else f"{now.rate:,.0f}",
                "-" if left is None else duration(left),
                "-" if now.mean_return is None else f"{now.mean_return:.1f}",
            )
        return Group(Text(self._headline(), style="bold"), table)

    def _headline(self) -> str:
        counts = {state: 0 for state in (*COUNTED, TrialState.WAITING)}
        for view in self._views:
            if view.state in counts:
                counts[view.state] += 1
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        over = sum(counts[state] for state in COUNTED) - counts[TrialState.RUNNING]
        best = self.study.best(1)
        value = (
            f"; best {best[0].values[0]:.6g} (trial {best[0].number})"
            if best and best[0].values
            else ""
        )
        left = self.plan.hpo.n_trials - over
        rate = (time.monotonic() - self._started) / self._n_ended if self._n_ended else None
        eta = "" if rate is None or left <= 0 else f"; about {duration(rate * left)} left"
        return f"{self.plan.hpo.n_trials} trials: {text or 'none yet'}{value}{eta}"

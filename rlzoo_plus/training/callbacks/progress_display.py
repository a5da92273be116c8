"""What the terminal shows while a run trains: a bar, or one line per evaluation."""

from __future__ import annotations

import logging
import math
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from rlzoo_plus.artifacts.result import EvaluationRecord
from rlzoo_plus.training.callbacks.base import RunCallback

log = logging.getLogger(__name__)
_REFRESH_S = 0.2
# Columns of a terminal with room for the label and the time.
_WIDE = 120


class LineProgress(RunCallback):
    """Callback that logs one line per evaluation, for files and pipes."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total = total
        self._started, self._first_step = time.monotonic(), 0

    def _on_training_start(self) -> None:
        self._started = time.monotonic()
        self._first_step = self.model.num_timesteps

    def on_evaluation(self, record: EvaluationRecord, is_best: bool) -> None:
        """Write the line."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (record["step"] - self._first_step) / seconds
        left = _duration(max(self.total - record["step"], 0) / rate) if rate else "-:--"
        # Whole episodes may go beyond the total.
        total = max(self.total, record["step"])
        done = f"step {record['step']:,}/{total:,}  {rate:,.0f} steps/s"
        mean_return = f"mean return {record['mean_return']:.1f} +- {record['std_return']:.1f}"
        log.info("%s  %s left  %s%s", done, left, mean_return, "  (best)" if is_best else "")

    def close(self) -> None:
        """There is nothing to close."""


class BarProgress(RunCallback):
    """Callback that shows steps, rate, time left and evaluations on one line of a terminal."""

    def __init__(self, total: int, console: Console, label: str) -> None:
        super().__init__()
        is_wide = console.width >= _WIDE
        columns: list[ProgressColumn] = [
            BarColumn(bar_width=24 if is_wide else 8),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            _Rate(),
            TextColumn("{task.fields[evaluation]}"),
        ]
        if is_wide:
            columns.insert(0, TextColumn("[bold]{task.description}"))
            columns.insert(-1, TimeElapsedColumn())
        for column in columns:
            # Rich does not erase a bar of several lines when it draws it again.
            column._table_column = Column(no_wrap=True)
        self.progress = Progress(*columns, console=console, transient=True)
        self._task = self.progress.add_task(label, total=total, evaluation="")
        self._best = float("-inf")
        self._drawn = 0.0

    def _on_training_start(self) -> None:
        self.progress.update(self._task, completed=self.model.num_timesteps)
        self.progress.start()

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._drawn >= _REFRESH_S:
            self._drawn = now
            self.progress.update(self._task, completed=self.num_timesteps)
        return True

    def on_evaluation(self, record: EvaluationRecord, is_best: bool) -> None:
        """Show the newest and the best mean return."""
        if is_best:
            self._best = record["mean_return"]
        text = f"eval {record['mean_return']:.1f}"
        if math.isfinite(self._best):
            text += f", best {self._best:.1f}"
        self.progress.update(self._task, completed=record["step"], evaluation=text)

    def close(self) -> None:
        """Remove the bar."""
        self.progress.stop()


class _Rate(ProgressColumn):
    """Environment steps a second, and the time left at that rate."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("-- steps/s")
        left = (task.total or 0.0) - task.completed
        return Text(f"{speed:,.0f}/s, {_duration(left / speed)} left")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

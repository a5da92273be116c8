"""End a run early: asked from outside, good enough, no longer improving, or out of time."""

from __future__ import annotations

import time
from typing import Any

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.callbacks.base import RunCallback, StopRequest
from rlzoo_plus.callbacks.checkpoint import CheckpointCallback
from rlzoo_plus.callbacks.evaluation import EvaluationCallback
from rlzoo_plus.config.schema import StopConfig


class StopCallback(RunCallback):
    """Ends the run for one of the reasons of `stop.*`."""

    def __init__(self, config: StopConfig, evaluation: EvaluationCallback | None) -> None:
        super().__init__()
        self.config = config
        self.evaluation = evaluation
        self._started = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Return the time used, of all processes that trained the run."""
        return {"clock": time.monotonic() - self._started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count from the time used before."""
        self._started = time.monotonic() - state["clock"]

    def on_iteration(self) -> None:
        """Raise `StopTraining` if there is a reason."""
        budget = self.config.wall_clock_minutes
        if budget is not None and time.monotonic() - self._started >= 60.0 * budget:
            raise StopTraining(f"stop.wall_clock_minutes={budget:g} are over")
        if self.evaluation is None or self.evaluation.last is None:
            return
        threshold, patience = self.config.reward_threshold, self.config.no_improvement_evals
        mean_return = self.evaluation.last["mean_return"]
        if threshold is not None and mean_return >= threshold:
            raise StopTraining(f"mean return {mean_return:.1f} reached stop.reward_threshold")
        if patience is not None and self.evaluation.since_best >= patience:
            raise StopTraining(f"no better evaluation in the last {self.evaluation.since_best}")


class InterruptCallback(RunCallback):
    """Honours what is asked for from outside: a checkpoint, or a last one and then the end."""

    def __init__(self, request: StopRequest, checkpoint: CheckpointCallback) -> None:
        super().__init__()
        self.request = request
        self.checkpoint = checkpoint

    def on_iteration(self) -> None:
        """Save if asked to; save and raise `StopTraining` if asked to stop."""
        if self.request.checkpoint:
            self.request.checkpoint = False
            self.checkpoint.save()
        if self.request.signal_number is not None:
            self.checkpoint.save_and_wait()
            raise StopTraining(self.request.signal_reason, interrupted=True)
        if self.request.reason is not None:
            self.checkpoint.save_and_wait()
            raise StopTraining(self.request.reason, interrupted=True)

"""Callbacks that end a run: for a reason of `stop.*`, and when it is asked to."""

from __future__ import annotations

import time
from typing import Any

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.config.schema import StopConfig
from rlzoo_plus.training.callbacks.base import RunCallback, StopRequest
from rlzoo_plus.training.callbacks.checkpoint_callback import CheckpointCallback
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback

# How long a run that is to stop waits for the end of an iteration of whole episodes, and how long
# before any iteration has ended [s].
_PATIENCE_S, _PATIENCE_AT_FIRST_S = 20.0, 0.3


class StopCallback(RunCallback):
    """Callback that ends the run for one of the reasons of `stop.*`."""

    def __init__(self, config: StopConfig, evaluation: EvaluationCallback | None) -> None:
        super().__init__()
        self.config, self.evaluation = config, evaluation
        self._started = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Return the time used, in all processes that trained the run."""
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
            since = self.evaluation.since_best
            raise StopTraining(f"no better evaluation in {since} (stop.no_improvement_evals)")


class InterruptCallback(RunCallback):
    """Callback that saves or ends the run when a `StopRequest` asks for it."""

    def __init__(self, request: StopRequest, checkpoint: CheckpointCallback) -> None:
        super().__init__()
        self.request, self.checkpoint = request, checkpoint

    def on_iteration(self) -> None:
        """Save if asked to; save and raise `StopTraining` if asked to stop."""
        request = self.request
        if request.checkpoint:
            request.checkpoint = False
            self.checkpoint.save()
        is_signalled = request.signal_number is not None
        reason = request.signal_reason if is_signalled else request.reason
        if reason is not None:
            self.checkpoint.save(waits=True)
            raise StopTraining(reason, interrupted=True)


class EpisodeInterruptCallback(InterruptCallback):
    """Callback as `InterruptCallback`, for iterations of whole episodes, of which one may not end.

    A run that is to stop in an iteration waits only a while for its end, and is then broken off: it
    resumes from its last checkpoint.
    """

    _n_iterations = 0
    _since: float | None = None

    def on_iteration(self) -> None:
        """Do as `InterruptCallback` does, and count: a second iteration shows that episodes end."""
        super().on_iteration()
        self._n_iterations += 1

    def _on_step(self) -> bool:
        if self.request.signal_number is None:
            return True
        self._since = self._since or time.monotonic()
        patience_s = _PATIENCE_S if self._n_iterations > 1 else _PATIENCE_AT_FIRST_S
        if time.monotonic() - self._since < patience_s:
            return True
        # What was done since then is not saved.
        self.model.num_timesteps = self.checkpoint.last_step
        raise StopTraining(f"{self.request.signal_reason} in an episode", interrupted=True)

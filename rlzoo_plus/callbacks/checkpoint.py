"""Write checkpoints: every so many steps or minutes, at each best, at milestones, when asked to."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

from rlzoo_plus.agents.finite import require_finite
from rlzoo_plus.artifacts.checkpoint import BackgroundWriter, Checkpoint
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks.base import RunCallback
from rlzoo_plus.callbacks.evaluation import EvaluationCallback
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import RunError
from rlzoo_plus.resume.snapshot import RunSnapshot, Snapshot

log = logging.getLogger(__name__)
_BEST, _MILESTONE = "best", "milestone"
# Between two looks for a request in the run directory.
_LOOK_S = 0.2


class CheckpointCallback(RunCallback):
    """Saves the run at the top of an iteration, where its state is complete.

    The state is copied there and written in the background; neither draws a random number, so
    that when and how often checkpoints are made changes nothing in the run.

    Attributes:
        saves_first: Whether the first iteration begins with a checkpoint, and waits for it.
    """

    def __init__(
        self, config: RunConfig, run_dir: RunDir, evaluation: EvaluationCallback | None = None
    ) -> None:
        super().__init__()
        self.config = config.checkpoint
        self.run_dir = run_dir
        self.store = run_dir.checkpoints(config.checkpoint.keep)
        self.snapshot = RunSnapshot(config, run_dir, self.store)
        self.evaluation = evaluation
        self.last_step = 0
        self.saves_first = False
        self._saved_step: int | None = None
        self._saved_as: str | None = None
        self._writer = BackgroundWriter()
        self._last_time = self._last_look = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: where the checkpoints are must not depend on where they were."""
        return {}

    def start_at(self, checkpoint: Checkpoint) -> None:
        """Count from a checkpoint that is there already."""
        self.last_step = self._saved_step = checkpoint.step
        self._saved_as = checkpoint.kept_as

    def _on_training_start(self) -> None:
        # Before anybody edits a file of what runs here.
        self.snapshot.code.look(self.model.env)

    def on_iteration(self) -> None:
        """Save if there is a reason to."""
        step = self.model.num_timesteps
        if self._is_saved(step):
            return
        if self.saves_first:
            self.saves_first = False
            self.save_and_wait()
        wanted = self._kept_as(step) is not None or self._is_due(step)
        if wanted or self._is_requested():
            self.save()

    def save(self) -> None:
        """Take a checkpoint of this moment, unless there is one, and begin to write it.

        A disk that is full does not end the training.

        Raises:
            RunError: A weight is NaN or infinite.
        """
        self._wait()
        try:
            self._begin(None)
        except OSError as error:
            log.error("no checkpoint at step %d: %s; training goes on", self._step, error)

    @property
    def _step(self) -> int:
        return self.model.num_timesteps

    def _begin(self, ended: str | None) -> None:
        """Copy the run's state and begin to write it; nothing else may be being written."""
        step = self._step
        if self._is_saved(step) and ended is None:
            return
        # A policy that has diverged must not push the good ones out.
        require_finite(self.model)
        kept_as = self._kept_as(step)
        answers_request = self.run_dir.checkpoint_request.exists()
        snapshot = self.snapshot.take(self.model, ended)
        self._writer.submit(lambda: self._write(snapshot, kept_as, answers_request))
        self.last_step, self._saved_step, self._saved_as = step, step, kept_as
        self._last_time = time.monotonic()

    def save_and_wait(self) -> None:
        """Take a checkpoint, and return when it is on the disk, or could not be written."""
        self.save()
        self._wait()

    def save_last(self, reason: str) -> None:
        """Take the last checkpoint of a run.

        Args:
            reason: Why training is over.

        Raises:
            RunError: It cannot be written; those before are as they were.
        """
        self._wait()
        try:
            self._save_now(reason)
        except OSError:
            # Chunks that somebody deleted are noticed by the first attempt, and written again.
            try:
                self._save_now(reason)
            except OSError as error:
                raise RunError(f"the last checkpoint cannot be written: {error}.") from error

    def _save_now(self, reason: str) -> None:
        self._begin(reason)
        self._writer.wait()

    def close(self) -> None:
        """Let the checkpoint that is being written be finished."""
        self._wait()

    def _write(self, snapshot: Snapshot, kept_as: str | None, answers_request: bool) -> None:
        self.store.save(
            snapshot.step,
            snapshot.state,
            snapshot.about,
            chunks=snapshot.chunks,
            kept_as=kept_as,
        )
        self.snapshot.has_written(self.store.chunks_at(snapshot.step))
        if answers_request:
            with contextlib.suppress(OSError):
                self.run_dir.checkpoint_request.unlink(missing_ok=True)

    def _wait(self) -> None:
        """Wait for the checkpoint before; training goes on without it if it failed."""
        try:
            self._writer.wait()
        except Exception as error:
            self._saved_step = None
            log.error("the last checkpoint could not be written: %s; training goes on", error)

    def _is_saved(self, step: int) -> bool:
        """Tell whether this moment has a checkpoint that stays as long as it should."""
        # An evaluation that was given up at a stop is made again after it, and may be the best.
        return step == self._saved_step and self._kept_as(step) in (None, self._saved_as)

    def _kept_as(self, step: int) -> str | None:
        best = None if self.evaluation is None else self.evaluation.best
        if self.config.keep_best and best is not None and best["step"] == step:
            return _BEST
        every = self.config.milestone_steps
        is_milestone = every is not None and step // every > self.last_step // every
        return _MILESTONE if is_milestone else None

    def _is_due(self, step: int) -> bool:
        every, minutes = self.config.every_steps, self.config.every_minutes
        if every is not None and step // every > self.last_step // every:
            return True
        return minutes is not None and time.monotonic() - self._last_time >= 60.0 * minutes

    def _is_requested(self) -> bool:
        now = time.monotonic()
        if now - self._last_look < _LOOK_S:
            return False
        self._last_look = now
        return self.run_dir.checkpoint_request.exists()

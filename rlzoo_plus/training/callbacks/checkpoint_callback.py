"""Writes checkpoints: every N steps or minutes, at each best, at milestones and on request."""

from __future__ import annotations

import contextlib
import logging
import time

from rlzoo_plus.artifacts.checkpoint import BackgroundWriter, Checkpoint
from rlzoo_plus.artifacts.encryption import cipher_of
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.finite import require_finite
from rlzoo_plus.errors import RunError
from rlzoo_plus.training.callbacks.base import RunCallback
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback, Pending
from rlzoo_plus.training.resume.snapshot import RunSnapshot, Snapshot

log = logging.getLogger(__name__)
# Between two checks for a request in the run directory [s].
_LOOK_S = 0.2


class CheckpointCallback(RunCallback):
    """Callback that saves the run at the top of an iteration, where its state is complete.

    The state is copied there and written in the background; neither draws a random number, so
    checkpoints do not change the run.

    Attributes:
        saves_first: Whether the first iteration begins with a checkpoint, and waits for it.
    """

    def __init__(
        self, config: RunConfig, run_dir: RunDir, evaluation: EvaluationCallback | None = None
    ) -> None:
        super().__init__()
        self.config, self.run_dir, self.evaluation = config.checkpoint, run_dir, evaluation
        self.store = run_dir.checkpoints(config.checkpoint.keep, cipher_of(config.encryption))
        self.snapshot = RunSnapshot(config, run_dir, self.store, evaluation)
        self.last_step, self.saves_first = 0, False
        self._saved_step: int | None = None
        self._saved_as: str | None = None
        self._writer = BackgroundWriter()
        self._last_time = self._last_look = time.monotonic()

    def has_saved(self, step: int) -> bool:
        """Return whether the checkpoint of a step was taken, and is not known to have failed."""
        return self._saved_step == step

    def start_at(self, checkpoint: Checkpoint) -> None:
        """Count from a checkpoint that is there already."""
        self.last_step = self._saved_step = checkpoint.step
        self._saved_as = checkpoint.kept_as

    def _on_training_start(self) -> None:
        # Before anybody edits a file of what runs here.
        self.snapshot.code.look(self.training_env)

    def on_iteration(self) -> None:
        """Save if there is a reason to."""
        step = self.model.num_timesteps
        if self._is_saved(step):
            return
        if self.saves_first:
            self.saves_first = False
            self.save(waits=True)
        pending = None if self.evaluation is None else self.evaluation.pending
        if pending is not None and pending.step == step:
            self._save_when_known(pending)
        elif self._kept_as(step) is not None or self._is_due(step) or self._is_requested():
            self.save()

    def save(self, *, waits: bool = False) -> None:
        """Take a checkpoint of this moment, unless there is one, and begin to write it.

        A disk that is full does not end the training. An evaluation beside it is waited for, and
        with `waits` also until the checkpoint is on the disk, or could not be written.

        Raises:
            RunError: A weight is NaN or infinite.
            StopTraining: The run is to end, and the evaluation takes too long.
        """
        self.settle(may_end=True)
        self.wait()
        try:
            self._begin(None)
        except OSError as error:
            step = self.model.num_timesteps
            log.error("no checkpoint at step %d: %s; training goes on", step, error)
        if waits:
            self.wait()

    def save_last(self, reason: str) -> None:
        """Take the last checkpoint of a run; `reason` is why training is over.

        Raises:
            RunError: It cannot be written; those before are as they were.
        """
        self.settle()
        self.wait()
        # Chunks that somebody deleted are noticed by the first attempt, and written again.
        for is_last_attempt in (False, True):
            try:
                self._begin(reason)
                self._writer.wait()
                return
            except OSError as error:
                if is_last_attempt:
                    raise RunError(f"the last checkpoint cannot be written: {error}.") from error

    def settle(self, *, may_end: bool = False) -> None:
        """Wait for an evaluation beside the training; see `EvaluationCallback.settle`."""
        if self.evaluation is not None:
            self.evaluation.settle(may_end=may_end)

    def wait(self) -> None:
        """Wait for the checkpoint that is being written; log an error if it fails."""
        try:
            self._writer.wait()
        except Exception as error:
            self._saved_step = None
            log.error("the last checkpoint could not be written: %s; training goes on", error)

    def close(self) -> None:
        """End the thread that writes."""
        self._writer.close()

    def _begin(self, ended: str | None) -> None:
        """Copy the run's state and begin to write it; nothing else may be being written."""
        step = self.model.num_timesteps
        if self._is_saved(step) and ended is None:
            return
        # A policy that has diverged must not replace the good ones.
        require_finite(self.model)
        kept_as = self._kept_as(step)
        answers_request = self.run_dir.checkpoint_request.exists()
        snapshot = self.snapshot.take(self.model, ended)
        self._writer.submit(lambda: self._write(snapshot, kept_as, answers_request))
        self.last_step, self._saved_step, self._saved_as = step, step, kept_as
        self._last_time = time.monotonic()

    def _save_when_known(self, pending: Pending) -> None:
        """Copy this moment; it is written once the evaluation that has begun at it is known.

        Only then is it certain whether this is the best, and what the checkpoint must hold of it.
        """
        step = pending.step
        is_milestone = self._passes(self.config.milestone_steps, step)
        is_due = is_milestone or self._is_due(step) or self._is_requested()
        answers_request = self.run_dir.checkpoint_request.exists()
        self.wait()
        try:
            snapshot = self.snapshot.take(self.model)
        except OSError as error:
            log.error("no checkpoint at step %d: %s; training goes on", step, error)
            return
        now = time.monotonic()
        if is_due:
            self.last_step, self._last_time = step, now

        def write(is_known: bool) -> None:
            kept_as = "best" if self._is_best(step) else "milestone" if is_milestone else None
            if is_known and not is_due and kept_as != "best":
                return
            try:
                whole = snapshot
                if is_known:
                    whole = self.snapshot.with_evaluation(snapshot, self.model)
                self._writer.submit(lambda: self._write(whole, kept_as, answers_request))
            except OSError as error:
                log.error("no checkpoint at step %d: %s; training goes on", step, error)
                return
            self.last_step, self._saved_step, self._saved_as = step, step, kept_as
            self._last_time = max(self._last_time, now)

        pending.on_known = write

    def _write(self, snapshot: Snapshot, kept_as: str | None, answers_request: bool) -> None:
        step, state, about = snapshot.step, snapshot.state, snapshot.about
        self.store.save(step, state, about, chunks=snapshot.chunks, kept_as=kept_as)
        self.snapshot.has_written(self.store.chunks_at(step))
        if answers_request:
            with contextlib.suppress(OSError):
                self.run_dir.checkpoint_request.unlink(missing_ok=True)

    def _is_saved(self, step: int) -> bool:
        """Return whether this step has a checkpoint that is kept as long as it should be."""
        # An evaluation that a stop cut short is made again after it, and may be the best.
        return step == self._saved_step and self._kept_as(step) in (None, self._saved_as)

    def _kept_as(self, step: int) -> str | None:
        if self._is_best(step):
            return "best"
        return "milestone" if self._passes(self.config.milestone_steps, step) else None

    def _is_best(self, step: int) -> bool:
        best = None if self.evaluation is None else self.evaluation.best
        return self.config.keep_best and best is not None and best["step"] == step

    def _passes(self, every: int | None, step: int) -> bool:
        """Return whether a multiple of `every` came up since the last checkpoint."""
        return every is not None and step // every > self.last_step // every

    def _is_due(self, step: int) -> bool:
        minutes = self.config.every_minutes
        is_late = minutes is not None and time.monotonic() - self._last_time >= 60.0 * minutes
        return is_late or self._passes(self.config.every_steps, step)

    def _is_requested(self) -> bool:
        now = time.monotonic()
        if now - self._last_look < _LOOK_S:
            return False
        self._last_look = now
        return self.run_dir.checkpoint_request.exists()

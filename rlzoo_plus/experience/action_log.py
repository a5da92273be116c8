"""Writes what every step of a training does to the action log of its run; see `action_file`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.artifacts.encryption import Cipher
from rlzoo_plus.experience.action_file import append_block

log = logging.getLogger(__name__)
_ROWS = 4096  # Of a block; a checkpoint and the end of the training complete one earlier


class ActionLog(BaseCallback):
    """Collects actions, and appends them to the log in blocks.

    The log is complete at each checkpoint, whose resume cuts off what came after it.
    """

    def __init__(self, path: Path, cipher: Cipher | None = None) -> None:
        """Name the file, and what encrypts its rows."""
        super().__init__()
        self._cipher = cipher
        self._path = path
        self._steps: list[tuple[NDArray[Any], ...]] = []
        self._n_waiting = 0

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds: nothing, since no row waits then."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore nothing."""

    def flush_rows(self) -> None:
        """Append the rows that wait; on a full disk they wait longer."""
        self._n_waiting = 0
        if not self._steps:
            return
        block = tuple(np.concatenate(column) for column in zip(*self._steps, strict=True))
        try:
            append_block(self._path, block, self._cipher)
            self._steps = []
        except OSError as error:
            self._steps = [block]
            log.warning("%s cannot be written: %s", self._path, error)

    def _on_step(self) -> bool:
        model: Any = self.model
        actions = np.asarray(self.locals.get("clipped_actions", self.locals["actions"]))
        # Without exploration nothing is drawn from a random generator.
        greedy, _ = model.predict(model._last_obs, deterministic=True)
        count, step = len(actions), self.num_timesteps
        warmup = self.locals.get("learning_starts", 0)
        if getattr(model, "use_sde_at_warmup", False) and model.use_sde:
            warmup = 0
        columns = (
            np.full(count, step, np.int64),
            np.arange(count, dtype=np.int32),
            actions.astype(model.action_space.dtype),
            greedy.astype(model.action_space.dtype),
            np.full(count, step - count < warmup),
        )
        self._steps.append(columns)
        self._n_waiting += count
        if self._n_waiting >= _ROWS:
            self.flush_rows()
        return True

    def _on_training_end(self) -> None:
        self.flush_rows()

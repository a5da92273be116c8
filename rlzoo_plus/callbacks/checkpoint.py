"""Write checkpoints every so many steps or minutes, and when asked to stop."""

from __future__ import annotations

import time
from pathlib import Path

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.agents.state import capture
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks.base import RunCallback
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.spaces import encode_space


class CheckpointCallback(RunCallback):
    """Saves the agent at the top of an iteration, where its state is complete."""

    def __init__(self, config: RunConfig, run_dir: RunDir) -> None:
        super().__init__()
        self.every_steps = config.checkpoint.every_steps
        self.every_minutes = config.checkpoint.every_minutes
        self.config_hash = config_hash(config)
        self.store = run_dir.checkpoints(config.checkpoint.keep)
        self.last_step = 0
        self._last_time = time.monotonic()

    def on_iteration(self) -> None:
        """Save if it is time by either measure."""
        step = self.model.num_timesteps
        by_steps = (
            self.every_steps is not None
            and step // self.every_steps > self.last_step // self.every_steps
        )
        minutes = (time.monotonic() - self._last_time) / 60.0
        by_time = self.every_minutes is not None and minutes >= self.every_minutes
        if by_steps or by_time:
            self.save()

    def save(self) -> Path:
        """Write a checkpoint of this moment."""
        step = self.model.num_timesteps
        normalizer = ObservationNormalizer.from_vec_normalize(self.model.get_vec_normalize_env())
        state = {
            "agent": capture(self.model),
            "normalizer": None if normalizer is None else normalizer.state(),
            "spaces": {
                "observation": encode_space(self.model.observation_space),
                "action": encode_space(self.model.action_space),
            },
        }
        path = self.store.save(step, state, {"config_hash": self.config_hash})
        self.last_step = step
        self._last_time = time.monotonic()
        return path

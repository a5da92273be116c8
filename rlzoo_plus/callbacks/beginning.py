"""How a training begins: from nothing, or from the newest whole checkpoint of its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.log_files import rewind_logs
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.callbacks import RunCallbacks
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)


class Beginning:
    """Finds the checkpoint to go on from, and restores it at the first iteration.

    Attributes:
        step: Environment steps taken before, 0 for a new run.
        ended: Why training had ended already, if the run was killed after its last step.
    """

    def __init__(self, config: RunConfig, run_dir: RunDir) -> None:
        """Read the checkpoint, and cut the logs back to its moment; nothing may write to them yet.

        Raises:
            ConfigError: The checkpoint is not of such a run.
        """
        self._checkpoint = checkpoint = run_dir.checkpoints().load_newest()
        self.step = 0 if checkpoint is None else checkpoint.step
        about = {"logs": {}} if checkpoint is None else checkpoint.about
        is_as_long = about.get("n_timesteps") == config.n_timesteps
        self.ended: str | None = about.get("ended") if is_as_long else None
        if "logs" not in about:
            return  # of schema 1: what was recorded after it stays
        try:
            rewind_logs(run_dir, about["logs"])
        except ValueError as error:
            raise self._misfit(error) from error

    def attach(self, agent: BaseAlgorithm, callbacks: RunCallbacks) -> None:
        """Stand at the top of the agent's loop: restore the first time, then let callbacks act."""
        self._agent, self._callbacks = agent, callbacks
        agent.before_iteration = self._before_iteration
        agent.resume_from = self.step

    def restore_once(self) -> None:
        """Restore, if that is still to be done.

        Raises:
            ConfigError: The checkpoint is of another run, or forged.
        """
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        saving = self._callbacks.checkpoint
        try:
            saving.snapshot.restore(self._agent, checkpoint)
        # Any part of it may be nonsense.
        except Exception as error:
            log.debug("what does not fit:", exc_info=True)
            raise self._misfit(error) from error
        self._checkpoint = None
        saving.start_at(checkpoint.step)
        log.info("goes on from step %s", f"{checkpoint.step:,}")

    def _before_iteration(self) -> None:
        self.restore_once()
        self._callbacks.on_iteration()

    def _misfit(self, error: Exception) -> ConfigError:
        assert self._checkpoint is not None
        return ConfigError(
            f"{self._checkpoint.path} does not fit this run: {one_line(error)}. Move it away to go "
            "on from the one before, or start anew with restart=true."
        )

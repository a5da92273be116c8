"""Resumer: starts a training from scratch, or from the newest whole checkpoint of its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.compare import changed_values, describe_changes
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.stages import stage_in
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.training.resume.log_rows import CutRows, rewind_logs

if TYPE_CHECKING:
    from rlzoo_plus.training.callbacks.checkpoint_callback import CheckpointCallback

log = logging.getLogger(__name__)


class Resumer:
    """Finds the checkpoint to resume from, and restores it at the first iteration.

    Attributes:
        is_new: Whether there is no checkpoint.
        step: Environment steps taken before, 0 for a new run.
        stage: Of the curriculum.
        ended: Why training had ended already, if the run was killed after its last step.
    """

    def __init__(self, config: RunConfig, run_dir: RunDir, *, goes_on: bool = False) -> None:
        """Read the checkpoint, and truncate the logs to its step; nothing may write to them yet.

        Args:
            config: Of the run.
            run_dir: Its directory.
            goes_on: This process has written the checkpoint, for another stage of the curriculum.

        Raises:
            ConfigError: The checkpoint does not fit the run, or was begun with another seed or
                number of processes.
        """
        self._has_begun, self._goes_on = False, goes_on
        self._checkpoint = checkpoint = run_dir.checkpoints().load_newest()
        self.is_new = checkpoint is None
        self.step = 0 if checkpoint is None else checkpoint.step
        about = {"logs": {}} if checkpoint is None else checkpoint.about
        self._changes = {} if checkpoint is None else changed_values(about, config)
        # They would have no effect: the random generators are restored, those of each process.
        for key in ("seed", "distributed"):
            if key in self._changes:
                # One process is not written down.
                old = self._changes[key][0] if isinstance(self._changes[key][0], int) else 1
                raise ConfigError(
                    f"{key}={getattr(config, key)}: the run in {run_dir.path} was begun with "
                    f"{key}={old}, and continues its random numbers. Write {key}: {old} back into "
                    "its config.yaml, or choose another run_dir."
                )
        is_as_long = about.get("n_timesteps") == config.n_timesteps
        try:
            self.stage = stage_in(about, config)
        except ValueError as error:
            raise self._misfit(error) from error
        self.ended: str | None = about.get("ended") if is_as_long else None
        self._cut_short: list[str] = []
        self._cut_rows: CutRows | None = None
        if "logs" not in about:
            return  # of schema 1: later records stay
        try:
            if checkpoint is not None:
                self._cut_rows = CutRows.keep(run_dir, about["logs"], checkpoint.step)
            self._cut_short = rewind_logs(run_dir, about["logs"])
        except ValueError as error:
            raise self._misfit(error) from error

    def attach(self, agent: Any, saving: CheckpointCallback) -> None:
        """Restore a freshly built agent at the top of its first iteration, with what saves it."""
        self._agent, self._saving = agent, saving
        saving.snapshot.cut_rows = self._cut_rows
        agent.resume_from = self.step

    def on_iteration(self) -> None:
        """Restore the first time; nothing else may act before."""
        if not self._has_begun:
            self._has_begun = True
            self._saving.snapshot.begin(self._agent)
        self.restore_once()

    def restore_once(self) -> None:
        """Restore the checkpoint unless that is done already.

        Raises:
            ConfigError: The checkpoint is of another run, or forged.
        """
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        missing = [f"{name} was cut short: records are missing" for name in self._cut_short]
        try:
            self._saving.snapshot.restore(self._agent, checkpoint, missing, goes_on=self._goes_on)
        except RunError:
            # The process of an environment ended, which says nothing about the checkpoint.
            raise
        # Any part of it may be forged.
        except Exception as error:
            log.debug("what does not fit:", exc_info=True)
            raise self._misfit(error) from error
        self._checkpoint = None
        self._saving.start_at(checkpoint)
        if not self._goes_on:
            log.info("resumes from step %s", f"{checkpoint.step:,}")

    def _misfit(self, error: Exception) -> ConfigError:
        assert self._checkpoint is not None
        if self._changes:
            return ConfigError(
                f"{self._checkpoint.path} cannot be resumed with the changed configuration: "
                f"{'; '.join(describe_changes(self._changes))} ({one_line(error)}). Change it back "
                "in config.yaml, or start again with restart=true."
            )
        return ConfigError(
            f"{self._checkpoint.path} does not fit this run: {one_line(error)}. Move it away to "
            "resume from the one before, or start again with restart=true."
        )

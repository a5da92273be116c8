"""The record of training episodes: of bounded memory, and never the end of a training."""

from __future__ import annotations

import logging
import os
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.monitor import Monitor, ResultsWriter

from rlzoo_plus.config.errors import RunError

log = logging.getLogger(__name__)
# As many as the averages of the log are over.
_KEPT = 100


class EpisodeMonitor(Monitor):
    """A `Monitor` that remembers the last hundred episodes only; its file has them all."""

    def __init__(self, env: gym.Env, file: Path | None = None) -> None:
        """Record an environment.

        Args:
            env: The environment.
            file: The CSV of its episodes, appended to if it is there; None for none.
        """
        super().__init__(env)
        self.episode_returns = deque(maxlen=_KEPT)  # type: ignore[assignment]
        self.episode_lengths = deque(maxlen=_KEPT)  # type: ignore[assignment]
        self.episode_times = deque(maxlen=_KEPT)  # type: ignore[assignment]
        self.results_writer = None if file is None else self._open(file)

    def reset(self, **kwargs: Any) -> Any:
        """Start an episode.

        Raises:
            RunError: The environment called `sys.exit`.
        """
        try:
            return super().reset(**kwargs)
        except SystemExit as error:
            raise _exited(error) from error

    def step(self, action: Any) -> Any:
        """Act.

        Raises:
            RunError: The environment called `sys.exit`.
        """
        try:
            return super().step(action)
        except SystemExit as error:
            raise _exited(error) from error

    def _open(self, file: Path) -> Any:
        env_id = None if self.env.spec is None else self.env.spec.id
        header: dict[str, Any] = {"t_start": self.t_start, "env_id": str(env_id)}
        try:
            rows = ResultsWriter(str(file), header, override_existing=not file.is_file())
        except OSError as error:
            log.warning("%s cannot be written: %s; training goes on", file, error)
            return None
        return _SafeRows(rows, file)


def _exited(error: SystemExit) -> RunError:
    # Passed on, it would end the command with the exit code of one that has done its work.
    return RunError(f"the environment called sys.exit({error.code!r}).")


class _SafeRows:
    """Rows of a file; says once that they cannot be written."""

    def __init__(self, rows: ResultsWriter, file: Path) -> None:
        self._rows, self._file = rows, file
        self._is_told = False

    def write_row(self, row: dict[str, Any]) -> None:
        try:
            self._rows.write_row(row)
            if os.fstat(self._rows.file_handler.fileno()).st_nlink == 0:
                raise FileNotFoundError("it was deleted")
        except (OSError, ValueError) as error:
            self._tell(error)

    def close(self) -> None:
        try:
            self._rows.close()
        except (OSError, ValueError) as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning(
                "%s cannot be written: %s; training goes on, and episodes are missing in it",
                self._file, error,
            )  # fmt: skip

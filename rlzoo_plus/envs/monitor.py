"""The record of episodes: what the last step tells of each, a file, and memory that is bounded."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.monitor import Monitor, ResultsWriter

from rlzoo_plus.errors import RunError

log = logging.getLogger(__name__)
# As many as the averages of the log are over.
_KEPT = 100
# What the last info of an episode may hold, and what its entries are logged under.
_TOTALS = {"episode_terms": "reward", "episode_violations": "violations"}
_END = "end/"
# What a `Monitor` itself says of an episode: return, length, time.
_OF_MONITOR = {"r", "l", "t"}


class EpisodeMonitor(Monitor):
    """A `Monitor` that remembers the last hundred episodes only; its file has them all.

    The last info's `episode` also has what that info tells of the whole episode, see `told_by`.
    """

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
        self.results_writer = None if file is None else open_rows(file, env.spec, self.t_start)  # type: ignore[assignment]

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
            result = super().step(action)
        except SystemExit as error:
            raise _exited(error) from error
        # Set by the last step only.
        if self.needs_reset:
            result[4]["episode"].update(told_by(result[4]))
        return result


def open_rows(file: Path, spec: Any, t_start: float) -> SafeRows | None:
    """Open a CSV of episodes; return None, with a warning, if that fails.

    Args:
        file: The file, appended to if it is there.
        spec: The environment's entry in Gymnasium's registry, None if it has none.
        t_start: When its clock began.
    """
    header: dict[str, Any] = {"t_start": t_start, "env_id": str(getattr(spec, "id", None))}
    try:
        rows = ResultsWriter(str(file), header, override_existing=not file.is_file())
    except OSError as error:
        log.warning("%s cannot be written: %s; training goes on", file, error)
        return None
    return SafeRows(rows, file)


def told_by(info: Mapping[str, Any]) -> dict[str, float]:
    """Return what the last info of an episode tells of all of it, by the name it is logged under.

    Our robots tell the sum of each reward term (`reward/<term>`), why the episode ended
    (`end/<reason>`, 1) and how often limits were broken (`violations/<limit>`); any environment
    may, with `episode_terms`, `end_reason` and `episode_violations` in its last info.
    """
    told: dict[str, float] = {}
    for key, prefix in _TOTALS.items():
        entries = info.get(key)
        if isinstance(entries, Mapping):
            told |= {f"{prefix}/{k}": float(v) for k, v in entries.items() if is_number(v)}
    reason = info.get("end_reason")
    return {**told, f"{_END}{reason}": 1.0} if isinstance(reason, str) else told


def mean_of_episodes(episodes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the episodes that have it; of ends, over all of them.

    Args:
        episodes: What is known of each, by name; return, length and time are left out.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    # In plain Python, and no more than this: an on-policy run may log after every few steps.
    for episode in episodes:
        for name, value in episode.items():
            if name in totals:
                totals[name] += value
                counts[name] += 1
            else:
                totals[name], counts[name] = value, 1
    # Every episode that tells its end has one.
    n_ended = sum(count for name, count in counts.items() if name.startswith(_END))
    return {
        name: float(totals[name] / (n_ended if name.startswith(_END) else counts[name]))
        for name in sorted(totals.keys() - _OF_MONITOR)
    }


def is_number(value: Any) -> bool:
    """Tell whether a value can be logged: a number of Python or NumPy, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _exited(error: SystemExit) -> RunError:
    # Passed on, it would end the command with the exit code of one that has done its work.
    return RunError(f"the environment called sys.exit({error.code!r}).")


class SafeRows:
    """Rows of a file; says once that they cannot be written."""

    def __init__(self, rows: ResultsWriter, file: Path) -> None:
        self._rows, self._file = rows, file
        self._is_told = False

    def write_row(self, row: dict[str, Any]) -> None:
        """Write a row."""
        try:
            self._rows.write_row(row)
            if os.fstat(self._rows.file_handler.fileno()).st_nlink == 0:
                raise FileNotFoundError("it was deleted")
        except (OSError, ValueError) as error:
            self._tell(error)

    def close(self) -> None:
        """Close the file."""
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

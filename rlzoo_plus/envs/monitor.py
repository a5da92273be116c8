"""The record of episodes: from the last info of each, in a file and in bounded memory."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.monitor import Monitor, ResultsWriter

from rlzoo_plus.envs.infos import copy_of, independent
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.registry import where_raised

log = logging.getLogger(__name__)
# The averages of the log are over as many.
_KEPT = 100
# What the last info of an episode may hold, and what its entries are logged under.
_TOTALS = {
    "episode_terms": "reward",
    "episode_returns": "return",
    "episode_violations": "violations",
    "episode_shield": "shield",
    "episode_wins": "win_rate",
    "episode_draws": "draw_rate",
}
_END = "end/"
# What a `Monitor` itself says of an episode: return, length, time.
_OF_MONITOR = {"r", "l", "t"}
# Where Stable-Baselines3 expects that, and where an entry of the environment's own goes instead.
EPISODE, OWN_EPISODE = "episode", "env_episode"


class EpisodeMonitor(Monitor):
    """A `Monitor` that keeps the last hundred episodes in memory; its file has them all.

    The last info's `episode` also has the numbers of the whole episode, see `episode_numbers`.
    """

    def __init__(self, env: gym.Env, file: Path | None = None) -> None:
        """Record an environment; `file` is the CSV of its episodes, appended to if it exists."""
        super().__init__(env)
        for name in ("episode_returns", "episode_lengths", "episode_times"):
            setattr(self, name, deque(maxlen=_KEPT))
        self.results_writer = None if file is None else EpisodeRows(file, env.spec, self.t_start)  # type: ignore[assignment]

    def reset(self, **kwargs: Any) -> Any:
        """Start an episode.

        Raises:
            RunError: The environment raised an error, or called `sys.exit`.
        """
        try:
            return super().reset(**kwargs)
        # User code can raise anything.
        except (Exception, SystemExit) as error:
            self._refuse(error, "reset()")
            raise

    def step(self, action: Any) -> Any:
        """Act; what the last step of an episode returns does not change with the reset.

        Raises:
            RunError: The environment raised an error, or called `sys.exit`.
        """
        try:
            return self._step(action)
        # User code can raise anything.
        except (Exception, SystemExit) as error:
            self._refuse(error, "step()")
            raise

    def _step(self, action: Any) -> Any:
        if self.needs_reset:
            raise RuntimeError("Tried to step environment that needs reset")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        self.total_steps += 1
        if terminated or truncated or EPISODE in info:
            # A copy: an environment may use its dictionary again.
            info = with_own_episode(independent(info))
        if terminated or truncated:
            observation = copy_of(observation)
            info[EPISODE] = {**self._end_episode(), **episode_numbers(info)}
        return observation, reward, terminated, truncated, info

    def _end_episode(self) -> dict[str, Any]:
        """Return return, length and time of the episode that has ended, as a `Monitor` does."""
        self.needs_reset = True
        total, length, taken_s = sum(self.rewards), len(self.rewards), time.time() - self.t_start
        self.episode_returns.append(total)
        self.episode_lengths.append(length)
        self.episode_times.append(taken_s)
        row = {"r": round(total, 6), "l": length, "t": round(taken_s, 6)}
        if self.results_writer:
            self.results_writer.write_row(row)
        return row

    def restore_counts(
        self, rewards: list[float], total_steps: int, t_start: float, needs_reset: bool
    ) -> None:
        """Go on with a running episode: its rewards, all steps so far, and the start's time."""
        self.rewards, self.total_steps = rewards, total_steps
        self.t_start, self.needs_reset = t_start, needs_reset

    def _refuse(self, error: BaseException, call: str) -> None:
        """Raise a `RunError` with the user's own line; errors of our robots stay as they are."""
        if isinstance(error, SystemExit):
            # Passed on, it would end the command with the exit code of one that has succeeded.
            raise RunError(f"the environment called sys.exit({error.code!r}).") from error
        env_id = "" if self.env.spec is None else self.env.spec.id
        if not isinstance(error, (ConfigError, RunError)) and not env_id.startswith("robots/"):
            raise RunError(f"env.id={env_id}: its {call} raises {where_raised(error)}.") from error


def with_own_episode(info: dict[str, Any]) -> dict[str, Any]:
    """Keep what an environment itself reports as `episode` under `OWN_EPISODE`; return `info`."""
    if EPISODE in info:
        info[OWN_EPISODE] = info.pop(EPISODE)
    return info


def episode_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that the last info of an episode has on all of it, by their logged name.

    Our robots report the sum of each reward term (`reward/<term>`), why the episode ended
    (`end/<reason>`, 1), how often limits were broken (`violations/<limit>`) and what a shield
    changed (`shield/<limit>`); any environment may, with `episode_terms`, `end_reason`,
    `episode_violations` and `episode_shield` in its last info; many agents have `return/<agent>`
    and `return/team`, of `episode_returns`, and games `win_rate/<opponent>` and `draw_rate/...`.
    """
    numbers: dict[str, float] = {}
    for key, prefix in _TOTALS.items():
        entries = info.get(key)
        if isinstance(entries, Mapping):
            numbers |= {f"{prefix}/{k}": float(v) for k, v in entries.items() if is_number(v)}
    reason = info.get("end_reason")
    return {**numbers, f"{_END}{reason}": 1.0} if isinstance(reason, str) else numbers


def mean_of_episodes(episodes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the episodes that have it; of ends, over all of them.

    Return, length and time are left out.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    # Plain Python is fast here, and an on-policy run may log after every few steps.
    for episode in episodes:
        for name, value in episode.items():
            if name in totals:
                totals[name] += value
                counts[name] += 1
            else:
                totals[name], counts[name] = value, 1
    # Every episode that reports its end has one.
    n_ended = sum(count for name, count in counts.items() if name.startswith(_END))
    return {
        name: float(totals[name] / (n_ended if name.startswith(_END) else counts[name]))
        for name in sorted(totals.keys() - _OF_MONITOR)
    }


def is_number(value: Any) -> bool:
    """Return whether a value can be logged: a number of Python or NumPy, but no bool."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


class EpisodeRows:
    """The rows of a CSV of episodes; warns once if they cannot be written."""

    def __init__(self, file: Path, spec: Any, t_start: float) -> None:
        """Open the file, or append to it; `spec` is that of the environment in Gymnasium."""
        self._file, self._is_broken = file, False
        self._rows: ResultsWriter | None = None
        header: dict[str, Any] = {"t_start": t_start, "env_id": str(getattr(spec, "id", None))}
        with self._warning(""):
            self._rows = ResultsWriter(str(file), header, override_existing=not file.is_file())

    def write_row(self, row: dict[str, Any]) -> None:
        """Write a row."""
        with self._warning(", and episodes are missing in it"):
            if self._rows is not None:
                self._rows.write_row(row)
                if os.fstat(self._rows.file_handler.fileno()).st_nlink == 0:
                    raise FileNotFoundError("it was deleted")

    def close(self) -> None:
        """Close the file."""
        with self._warning(", and episodes are missing in it"):
            if self._rows is not None:
                self._rows.close()

    @contextlib.contextmanager
    def _warning(self, more: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            if not self._is_broken:
                log.warning("%s cannot be written: %s; training goes on%s", self._file, error, more)
            self._is_broken = True

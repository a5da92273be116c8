"""Steps environments of other interpreters together: one message for all of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rlzoo_plus.envs.episodes import RecordedEpisodes, layers_of
from robots.transition import Transition


class RemoteBatch:
    """Steps n of them for `BatchedRobots`: all processes at once, each with one message."""

    @staticmethod
    def batch_of(envs: Sequence[gym.Env]) -> RemoteBatch:
        """Return what steps these."""
        return RemoteBatch(envs)

    @staticmethod
    def enough_of_kind(kind: type) -> int:
        """Return how many are stepped faster together."""
        return 2

    @staticmethod
    def why_not_known(env: gym.Env) -> str | None:
        """Return why one cannot be stepped with others; None if it can."""
        return None

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n environments, from `make_env`."""
        self._envs: list[Any] = [env.unwrapped for env in envs]
        self._limits = [_layer_of(env, TimeLimit) for env in envs]
        self._records = [_layer_of(env, RecordedEpisodes) for env in envs]
        self._space = envs[0].observation_space

    def take_over(self, index: int) -> None:
        """Do nothing: the environment is where it was."""

    def give_back(self, index: int) -> None:
        """Do nothing: the environment is where it was."""

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one environment."""
        return self._envs[index].mark

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds; none is reset."""
        # A copy, since what was given may be changed later.
        actions = actions.copy()
        asked: dict[Any, list[int]] = {}
        for index, env in enumerate(self._envs):
            asked.setdefault(env.place()[0], []).append(index)
        for interpreter, chosen in asked.items():
            worlds = [self._envs[index].place()[1] for index in chosen]
            moves = [actions[index] for index in chosen]
            interpreter.send({"do": "step", "worlds": worlds, "actions": moves})
        found: list[Any] = [None] * len(self._envs)
        for interpreter, chosen in asked.items():
            for index, step in zip(chosen, interpreter.answer(), strict=True):
                found[index] = step
        seen, rewards, ends, cuts, infos = (list(part) for part in zip(*found, strict=True))
        for index, (limit, record) in enumerate(zip(self._limits, self._records, strict=True)):
            if limit is not None:
                limit._elapsed_steps += 1
                cuts[index] = cuts[index] or limit._elapsed_steps >= limit._max_episode_steps
            if record is not None:
                record.note_step(actions[index], seen[index])
        terminated = np.array(ends, bool)
        truncated = np.array(cuts, bool) & ~terminated
        return Transition(self._stacked(seen), np.array(rewards), terminated, truncated, infos)

    def _stacked(self, seen: list[Any]) -> Any:
        if not isinstance(self._space, gym.spaces.Dict):
            return np.array(seen)
        return {key: np.array([each[key] for each in seen]) for key in self._space.spaces}


def _layer_of(env: gym.Env, kind: type) -> Any:
    """Return the wrapper of a kind around an environment, None if there is none."""
    return next((layer for layer in layers_of(env) if isinstance(layer, kind)), None)

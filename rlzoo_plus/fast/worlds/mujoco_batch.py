"""Many MuJoCo environments of Gymnasium at once: the numbers of the originals, bit for bit.

MuJoCo steps the worlds, in threads where that is faster, since it holds no lock of Python. What
the originals compute of each world is computed of all of them by NumPy: the same operations, in
the same precision and order. The worlds stay those of the originals, so that nothing is copied
when one of them is reset, rendered or changed by somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np

from rlzoo_plus.fast.worlds.world_batch import WorldBatch
from robots.transition import Transition


class Outcome(NamedTuple):
    """What a step came to, by world."""

    observation: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    infos: dict[str, Iterable[Any]]


class MujocoBatch(WorldBatch):
    """Steps n environments of one kind."""

    enough = 2
    has_forces: ClassVar[bool] = False
    """Whether contact forces are looked at, which MuJoCo computes only when asked."""
    settings: ClassVar[tuple[str, ...]]
    """Numbers of an environment that decide its reward and its end; they may be changed."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n environments, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        super().__init__(envs)
        self._data = [env.data for env in self._envs]
        self._settings_of = attrgetter("frame_skip", "dt", *self.settings)
        self._known: list[Any] = []
        self._pool: tuple[Any, ThreadPoolExecutor] | None = None
        self._views: dict[tuple[str, int], list[np.ndarray]] = {}
        self._lags = [False] * len(envs)

    def give_back(self, index: int) -> None:
        """Let an environment know of its episode; it shares its world with the batch."""
        super().give_back(index)
        if self._lags[index] and not self.has_forces:
            # The original does so at each step.
            mujoco.mj_rnePostConstraint(self._envs[index].model, self._data[index])
        self._lags[index] = False

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one environment."""
        return self._limits[index]._elapsed_steps

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds, shape (n, n_actions); none is reset."""
        known = [self._settings_of(env) for env in self._envs]
        if known != self._known:
            self._known = known
            columns = zip(*known, strict=True)
            for name, column in zip(("frame_skip", "dt", *self.settings), columns, strict=True):
                setattr(self, name.lstrip("_"), np.array(column))
        before = self._place()
        self._threads.timed(partial(self._advance, actions))
        self._lags = [True] * len(self._envs)
        outcome = self._look(actions, (self._place() - before) / self._by_row(self.dt, before))
        names = outcome.infos.keys()
        rows = zip(*outcome.infos.values(), strict=True)
        infos = [dict(zip(names, row, strict=True)) for row in rows]
        return self._moved(actions, outcome.observation, outcome.reward, outcome.ended, infos)

    dt: np.ndarray
    frame_skip: np.ndarray

    def _place(self) -> np.ndarray:
        """Return what the velocity in the reward is the change of, shape (n,) or (n, 2)."""
        return self._all("qpos")[:, 0]

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        """Return what the worlds came to."""
        raise NotImplementedError

    def _advance(self, actions: np.ndarray, n_threads: int) -> None:
        """Step the worlds as `MujocoEnv.do_simulation` does."""
        if n_threads == 1:
            return self._advance_some(actions, range(len(self._envs)))
        # A forked process has none of its parent's threads.
        key = os.getpid(), n_threads
        if self._pool is None or self._pool[0] != key:
            self._pool = key, ThreadPoolExecutor(n_threads - 1)
        shares = [range(k, len(self._envs), n_threads) for k in range(n_threads)]
        others = [self._pool[1].submit(self._advance_some, actions, s) for s in shares[1:]]
        self._advance_some(actions, shares[0])
        for other in others:
            other.result()
        return None

    def _advance_some(self, actions: np.ndarray, indices: range) -> None:
        for index in indices:
            env, data = self._envs[index], self._data[index]
            data.ctrl[:] = actions[index]
            mujoco.mj_step(env.model, data, env.frame_skip)
            if self.has_forces:
                mujoco.mj_rnePostConstraint(env.model, data)

    def _all(self, name: str, skip: int = 0) -> np.ndarray:
        """Return an array of all worlds, each without its first rows, shape (n, size)."""
        key = name, skip
        if key not in self._views:
            # They show the worlds as they are now, at any time.
            self._views[key] = [getattr(data, name)[skip:] for data in self._data]
        return np.concatenate(self._views[key]).reshape(len(self._data), -1)

    def _control_cost(self, actions: np.ndarray) -> np.ndarray:
        """Return what actions cost, in the precision of the actions, shape (n,)."""
        sums = np.add.reduce(np.square(actions), axis=1)
        cost: np.ndarray = self.ctrl_cost_weight.astype(actions.dtype) * sums
        return cost

    ctrl_cost_weight: np.ndarray

    @staticmethod
    def _by_row(values: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return a number of each world so that it meets all of its row."""
        return values.reshape(-1, *[1] * (like.ndim - 1))

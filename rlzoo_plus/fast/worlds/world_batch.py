"""What is common to batches of environments of other packages, which are stepped in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rlzoo_plus.envs.episodes import RecordedEpisodes, layers_of
from robots.quiet import native_output_hidden
from robots.threads import Threads
from robots.transition import Transition


class WorldBatch:
    """Steps n environments of one kind; the counterpart of `RobotVecEnv` for `BatchedRobots`.

    The originals reset the worlds, and know of the running episode after `give_back`.
    """

    enough: ClassVar[int] = 1
    """How many are stepped faster than the originals one by one."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n environments, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        self._envs: list[Any] = [env.unwrapped for env in envs]
        self._limits = [layer_of(env, TimeLimit) for env in envs]
        self._records = [layer_of(env, RecordedEpisodes) for env in envs]
        self._max_steps = min(limit._max_episode_steps for limit in self._limits)
        self._threads = Threads(len(envs), hash(type(self._envs[0])))
        self._steps = np.zeros(len(envs), np.int64)

    def take_over(self, index: int) -> None:
        """Continue from the state of one environment, which was reset or stepped by itself."""
        self._steps[index] = self._limits[index]._elapsed_steps

    def give_back(self, index: int) -> None:
        """Write the state of a world into its environment; the opposite of `take_over`."""
        self._limits[index]._elapsed_steps = int(self._steps[index])

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one environment."""
        raise NotImplementedError

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds, shape (n, n_actions); none is reset."""
        raise NotImplementedError

    def _moved(
        self,
        actions: np.ndarray,
        observation: np.ndarray,
        rewards: np.ndarray,
        ends: np.ndarray,
        infos: list[dict[str, Any]] | None = None,
    ) -> Transition:
        """Record a step of all worlds, and return what it came to."""
        self._steps += 1
        # A copy, since what was given may be changed later.
        for record, action, seen in zip(self._records, actions.copy(), observation, strict=True):
            if record is not None:
                record.note_step(action, seen)
        truncated = ~ends & (self._steps >= self._max_steps)
        infos = [{} for _ in self._envs] if infos is None else infos
        return Transition(observation, rewards, ends, truncated, infos)


def layer_of(env: gym.Env, kind: type) -> Any:
    """Return the wrapper of a kind around an environment, None if there is none."""
    return next((layer for layer in layers_of(env) if isinstance(layer, kind)), None)


def steps_alike(
    make: Callable[[], gym.Env], batch_of: Callable[[Sequence[gym.Env]], WorldBatch]
) -> bool:
    """Step one environment as it is and another in a batch, from the same start; compare all bits.

    One after the other, and not both at once: the memory of the first world becomes the second's.
    """
    with native_output_hidden():
        return _played(make(), None) == _played(make(), batch_of)


def _played(
    env: gym.Env, batch_of: Callable[[Sequence[gym.Env]], WorldBatch] | None
) -> list[tuple[bytes, float, bool]]:
    space: Any = env.action_space
    found = []
    try:
        env.reset(seed=0)
        batch = None if batch_of is None else batch_of([env])
        if batch is not None:
            batch.take_over(0)
        actions = np.random.default_rng(0).uniform(-1, 1, (2, *space.shape))
        for action in actions.astype(np.float32):
            if batch is not None:
                moved = batch.step_worlds(action[None])
                seen, reward, ended = moved.observation[0], moved.reward[0], moved.terminated[0]
            else:
                seen, reward, ended, _, _ = env.step(action)
            found.append((seen.tobytes(), float(reward), bool(ended)))
        return found
    finally:
        env.close()

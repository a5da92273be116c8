"""Robots that step together, with the results of Stable-Baselines3's `DummyVecEnv`.

Each world keeps its own chain of wrappers for resets, records and the ends of episodes. The steps
between are taken by all worlds in one pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from rlzoo_plus.envs.batching import is_robot_of_ours, worlds_of

_Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class BatchedRobots(DummyVecEnv):
    """Steps n robots in one pass, with the numbers, infos and files of a `DummyVecEnv`.

    The environments lag behind the batch between resets. They are brought up to date before
    anything is asked of them.
    """

    def __init__(self, makers: Sequence[Callable[[], Monitor]]) -> None:
        """Batch environments of one specification; `batch_problem` must find nothing in them."""
        monitors = [make() for make in makers]
        for monitor in monitors:
            monitor.env = _StepTaken(monitor.env)
        self._batch: Any = _batch_of([monitor.env for monitor in monitors])
        self._lags = [False] * len(monitors)
        self._may_step = False
        self.envs: list[Any]
        super().__init__([lambda monitor=monitor: monitor for monitor in monitors])  # type: ignore[misc]

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        observations = super().reset()
        for index in range(self.num_envs):
            self._take_over(index)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Act everywhere, and reset where an episode ended."""
        if not self._may_step:
            if any(monitor.needs_reset for monitor in self.envs):
                raise RuntimeError("Tried to step environment that needs reset")
            self._may_step = True
        moved = self._batch.step_worlds(np.asarray(self.actions))
        self._lags = [True] * self.num_envs
        dones = moved.terminated | moved.truncated
        # Copies: what is returned must not change with the worlds.
        is_dict = isinstance(moved.observation, dict)
        seen: dict[Any, Any] = moved.observation if is_dict else {None: moved.observation}
        observations: dict[Any, np.ndarray] = {
            key: np.array(seen[key], self.buf_obs[key].dtype) for key in self.keys
        }
        rewards, cut = moved.reward.tolist(), moved.truncated.tolist()
        parts = zip(self.envs, rewards, moved.infos, cut, strict=True)
        for monitor, reward, info, truncated in parts:
            info["TimeLimit.truncated"] = truncated
            monitor.rewards.append(reward)
            monitor.total_steps += 1
        for index in np.flatnonzero(dones).tolist():
            last = {key: value[index].copy() for key, value in seen.items()}
            observation = last if is_dict else last[None]
            ended = bool(moved.terminated[index])
            step = (observation, rewards[index], ended, cut[index], moved.infos[index])
            first, moved.infos[index] = self._end_episode(index, step)
            for key in self.keys:
                observations[key][index] = first if key is None else first[key]
        now = OrderedDict(observations) if is_dict else observations[None]
        return now, moved.reward.astype(np.float32), dones, moved.infos

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of each environment, brought up to date."""
        self._catch_up(indices)
        return super().get_attr(attr_name, indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each environment."""
        self._may_step = False
        super().set_attr(attr_name, value, indices)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Call a method of each environment; the batch continues from its result."""
        self._catch_up(indices)
        chosen = list(self._get_indices(indices))
        before = [self._batch.mark(index) for index in chosen]
        results = super().env_method(method_name, *args, indices=indices, **kwargs)
        for index, mark in zip(chosen, before, strict=True):
            if self._batch.mark(index) is not mark:
                self._take_over(index)
        return results

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return an image of each environment as it is now."""
        self._catch_up(None)
        return super().get_images()

    def _end_episode(self, index: int, step: _Step) -> tuple[Any, dict[str, Any]]:
        """Pass the last step of an episode through its chain.

        Returns:
            The next observation, and the info of the last step.
        """
        monitor: Any = self.envs[index]
        # It counts this step itself.
        monitor.rewards.pop()
        monitor.total_steps -= 1
        monitor.env.taken = step
        info = monitor.step(None)[4]
        info["terminal_observation"] = step[0]
        first, self.reset_infos[index] = monitor.reset()
        self._take_over(index)
        return first, info

    def _take_over(self, index: int) -> None:
        self._batch.take_over(index)
        self._lags[index] = False
        self._may_step = False

    def _catch_up(self, indices: Any) -> None:
        for index in self._get_indices(indices):
            if self._lags[index]:
                self._batch.give_back(index)
                self._lags[index] = False


def _batch_of(envs: list[gym.Env]) -> Any:
    """Return what steps these chains of wrappers: of our robots, or of other packages' own."""
    if not is_robot_of_ours(envs[0]):
        return worlds_of(type(envs[0].unwrapped)).batch_of(envs)
    # It needs PyBullet, which need not be installed.
    from robots.vec_env import RobotVecEnv

    robots: list[Any] = [env.unwrapped for env in envs]
    batch = RobotVecEnv(robots)
    # Closing the environments is up to their monitors, not to the garbage collector.
    batch.closed = True
    return batch


class _StepTaken(gym.Wrapper):
    """Returns `taken`, a step that the batch has taken already, or takes one if it is None."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.taken: _Step | None = None

    def step(self, action: Any) -> _Step:
        if self.taken is None:
            return self.env.step(action)
        step, self.taken = self.taken, None
        return step

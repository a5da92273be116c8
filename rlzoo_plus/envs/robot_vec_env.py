"""Our robots side by side: `RobotVecEnv` in the form of Stable-Baselines3's `DummyVecEnv`.

Each world keeps its own chain of wrappers: resets, records and ends of episodes go through it. Only
the steps between are taken by all worlds in one pass. Everything that can be seen is the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from stable_baselines3.common.vec_env.util import dict_to_obs

from robots.env import BaseRobotEnv
from robots.vec_env import RobotVecEnv

_Step = tuple[Any, float, bool, bool, dict[str, Any]]


class BatchedRobots(DummyVecEnv):
    """Steps n robots in one pass, with the numbers, infos and files of a `DummyVecEnv`.

    The environments lag behind the batch between resets. They are brought up to date before
    anything is asked of them.
    """

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        """Take over environments in which `batch_problem` finds none.

        Args:
            monitors: At least one, made with the same arguments, each with its chain inside.
        """
        for monitor in monitors:
            monitor.env = _StepTaken(monitor.env)
        self._robots: list[BaseRobotEnv] = [monitor.unwrapped for monitor in monitors]
        self._batch = RobotVecEnv(self._robots)
        self._lags = [False] * len(monitors)
        self._may_step = False
        super().__init__([lambda monitor=monitor: monitor for monitor in monitors])

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        observations = super().reset()
        for index in range(self.num_envs):
            self._take_over(index)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Act everywhere, and start anew where an episode ended."""
        if not self._may_step:
            self._require_episodes()
        moved = self._batch.step_worlds(np.asarray(self.actions))
        self._lags = [True] * self.num_envs
        dones = moved.terminated | moved.truncated
        # Copies: nothing that is handed out may change with the worlds.
        parts = moved.observation if isinstance(moved.observation, dict) else {None: moved[0]}
        observations = OrderedDict(
            (key, np.array(parts[key], self.buf_obs[key].dtype)) for key in self.keys
        )
        rewards, cut = moved.reward.tolist(), moved.truncated.tolist()
        for monitor, reward, info, truncated in zip(
            self.envs, rewards, moved.infos, cut, strict=True
        ):
            info["TimeLimit.truncated"] = truncated
            monitor.rewards.append(reward)
            monitor.total_steps += 1
        for index in np.flatnonzero(dones).tolist():
            terminated = bool(moved.terminated[index])
            last = _row(moved.observation, index)
            step = (last, rewards[index], terminated, cut[index], moved.infos[index])
            first = self._end_episode(index, step)
            for key in self.keys:
                observations[key][index] = first if key is None else first[key]
        return (
            dict_to_obs(self.observation_space, observations),
            moved.reward.astype(np.float32),
            dones,
            moved.infos,
        )

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of each environment, brought up to date."""
        self._catch_up(indices)
        return super().get_attr(attr_name, indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each environment."""
        self._may_step = False
        super().set_attr(attr_name, value, indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each environment; the batch goes on from where it leads."""
        self._catch_up(indices)
        chosen = list(self._get_indices(indices))
        before = [self._robots[index].readings for index in chosen]
        results = super().env_method(method_name, *method_args, indices=indices, **method_kwargs)
        for index, readings in zip(chosen, before, strict=True):
            # A new array after every step and every reset.
            if self._robots[index].readings is not readings:
                self._take_over(index)
        return results

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return a picture of each environment as it is now."""
        self._catch_up(None)
        return super().get_images()

    def _end_episode(self, index: int, step: _Step) -> Any:
        """Let a chain see the last step of its episode and begin the next; return what it sees."""
        monitor, info = self.envs[index], step[-1]
        # It counts this step itself.
        monitor.rewards.pop()
        monitor.total_steps -= 1
        monitor.env.taken = step
        monitor.step(None)
        info["terminal_observation"] = step[0]
        first, self.reset_infos[index] = monitor.reset()
        self._take_over(index)
        return first

    def _take_over(self, index: int) -> None:
        self._batch.take_over(index)
        self._lags[index] = False
        self._may_step = False

    def _catch_up(self, indices: Any) -> None:
        """Bring environments to where the batch is."""
        for index in self._get_indices(indices):
            if self._lags[index]:
                self._batch.give_back(index)
                self._lags[index] = False

    def _require_episodes(self) -> None:
        if any(monitor.needs_reset for monitor in self.envs):
            raise RuntimeError("Tried to step environment that needs reset")
        self._may_step = True


class _StepTaken(gym.Wrapper):
    """Passes on a step that the batch has taken already, or takes one if there is none.

    Attributes:
        taken: What the batch's step returned for this environment, None without such a step.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.taken: _Step | None = None

    def step(self, action: Any) -> _Step:
        """Return the step that was taken."""
        if self.taken is None:
            return self.env.step(action)
        step, self.taken = self.taken, None
        return step


def _row(observation: Any, index: int) -> Any:
    if isinstance(observation, dict):
        return {key: value[index].copy() for key, value in observation.items()}
    return observation[index].copy()

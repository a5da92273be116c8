"""Stops a run at the first number that is none: in an observation, a reward or an action."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnv,
    VecEnvObs,
    VecEnvStepReturn,
    VecEnvWrapper,
)

from rlzoo_plus.errors import RunError


class NonFiniteError(RunError):
    """NaN or an infinite number came from an environment, or from the policy."""

    def __init__(self, template: str, n_steps: int) -> None:
        """Tell what it is.

        Args:
            template: The sentence, with `{step}` for the step.
            n_steps: Environment steps at that moment, of this process.
        """
        super().__init__(template.format(step=f"{n_steps:,}"))
        self._template, self._n_steps = template, n_steps

    def after(self, n_steps: int) -> NonFiniteError:
        """Return the same for a process that has begun after so many steps."""
        return NonFiniteError(self._template, n_steps + self._n_steps)


class FiniteVecEnv(VecEnvWrapper):
    """Passes everything on, and raises `NonFiniteError` instead of passing on NaN or infinity.

    Learning from one such number makes all weights NaN, often without a word.
    """

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self._n_steps = 0

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        observations = self.venv.reset()
        self._check_observations(observations)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._n_steps += self.num_envs
        if not _is_finite(actions):
            rank, number = _first(actions)
            raise self._error(
                f"the policy's action for environment {rank} became {number} at step {{step}}: "
                "training has diverged. A lower learning rate often helps."
            )
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """End a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        if not _is_finite(rewards):
            rank, number = _first(rewards)
            raise self._returned(number, "reward", rank)
        self._check_observations(observations)
        for rank, info in enumerate(infos):
            if "terminal_observation" in info:
                self._check_last(info["terminal_observation"], rank)
        return observations, rewards, dones, infos

    def _check_observations(self, observations: Any) -> None:
        for name, values in _parts(observations):
            if not _is_finite(values):
                rank, number = _first(values)
                raise self._returned(number, name, rank)

    def _check_last(self, observation: Any, rank: int) -> None:
        for name, values in _parts(observation):
            if not _is_finite(values):
                raise self._returned(_first(values)[1], f"last {name}", rank)

    def _returned(self, number: str, what: str, rank: int) -> NonFiniteError:
        return self._error(
            f"the environment returned {number} at step {{step}}: {what} of environment {rank}."
        )

    def _error(self, template: str) -> NonFiniteError:
        return NonFiniteError(template, self._n_steps)


def _parts(observations: Any) -> list[tuple[str, Any]]:
    """Return the arrays of observations with what to call them."""
    if isinstance(observations, dict):
        return [(f"observation[{key}]", values) for key, values in observations.items()]
    if isinstance(observations, tuple):
        return [(f"observation[{key}]", values) for key, values in enumerate(observations)]
    return [("observation", observations)]


def _is_finite(values: Any) -> bool:
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return True
    # NaN and infinity times zero are NaN: three times as fast as looking at each number.
    with np.errstate(invalid="ignore"):
        if array.ravel().dot(_zeros(array.size, array.dtype)) == 0.0:
            return True
    return bool(np.isfinite(array).all())


@functools.lru_cache(maxsize=64)
def _zeros(size: int, dtype: np.dtype) -> np.ndarray:
    return np.zeros(size, dtype)


def _first(values: Any) -> tuple[int, str]:
    """Return the environment of the first number that is none, and what it is."""
    array = np.asarray(values)
    place = tuple(np.argwhere(~np.isfinite(array))[0])
    return int(place[0]) if place else 0, "NaN" if np.isnan(array[place]) else "inf"

"""Stops a run at the first NaN or infinity: in observations, rewards, actions or weights."""

from __future__ import annotations

import re
from math import isfinite
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnv,
    VecEnvObs,
    VecEnvStepReturn,
    VecEnvWrapper,
)

from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.errors import RunError


class FiniteVecEnv(VecEnvWrapper):
    """Wrapper that raises `RunError` instead of passing on NaN or infinity.

    Learning from one such number makes all weights NaN, often without an error.

    Attributes:
        n_steps: Environment steps so far; those before a resume are added by the algorithm.
    """

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.n_steps = 0

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        observations = self.venv.reset()
        for name, values in _parts(observations):
            self._check(name, values)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self.n_steps += self.num_envs
        if not _is_finite(actions):
            rank, number = _first(actions)
            raise RunError(
                f"the policy's action for environment {rank} became {number} at step "
                f"{self.n_steps:,}: training has diverged. A lower learning rate often helps."
            )
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """End a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self._check("reward", rewards)
        for name, values in _parts(observations):
            self._check(name, values)
        for rank, info in enumerate(infos):
            if "terminal_observation" in info:
                for name, values in _parts(info["terminal_observation"]):
                    self._check(f"last {name}", values, rank)
        return observations, rewards, dones, infos

    def _check(self, what: str, values: Any, rank: int | None = None) -> None:
        if not _is_finite(values):
            found, number = _first(values)
            raise RunError(
                f"the environment returned {number} at step {self.n_steps:,}: {what} of "
                f"environment {found if rank is None else rank}."
            )


def _parts(observations: Any) -> list[tuple[str, Any]]:
    if isinstance(observations, tuple):
        observations = dict(enumerate(observations))
    if isinstance(observations, dict):
        return [(f"observation[{key}]", values) for key, values in observations.items()]
    return [("observation", observations)]


def _is_finite(values: Any) -> bool:
    array = np.asarray(values)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _first(values: Any) -> tuple[int, str]:
    """Return the environment of the first number that is not finite, and what it is."""
    array = np.asarray(values)
    place = tuple(np.argwhere(~np.isfinite(array))[0])
    return int(place[0]) if place else 0, "NaN" if np.isnan(array[place]) else "inf"


def require_finite(agent: BaseAlgorithm) -> None:
    """Check all that an agent has learned.

    Raises:
        RunError: There is NaN or infinity in it.
    """
    name = _first_not_finite(agent)
    if name is not None:
        raise _diverged(agent, f"the weights ({name}) became NaN or inf")


def raise_if_diverged(agent: BaseAlgorithm, error: Exception) -> None:
    """Replace an error of torch about NaN, which names neither cause nor step.

    Raises:
        RunError: The error comes from weights that have diverged.
    """
    require_finite(agent)
    # Finite weights can be so large that a distribution has no width any more.
    refused = re.match(r"Expected parameter (\w+) \(.* of distribution (\w+)", str(error))
    if isinstance(error, ValueError) and refused is not None:
        what = f"{refused[1]} of the policy's {refused[2]} distribution"
        raise _diverged(agent, f"{what} became NaN, inf or zero") from error


def has_lost_a_loss(agent: BaseAlgorithm) -> bool:
    """Return whether the last update reported a loss that is not finite; this check is cheap."""
    return any(
        name.endswith("loss") and isinstance(value, (float, np.floating)) and not isfinite(value)
        for name, value in agent.logger.name_to_value.items()
    )


def _diverged(agent: BaseAlgorithm, what: str) -> RunError:
    return RunError(
        f"{what} by step {agent.num_timesteps:,}: training has diverged. A lower learning rate "
        "often helps."
    )


def _first_not_finite(agent: BaseAlgorithm) -> str | None:
    others = [(name, attrgetter(name)(agent)) for name in agent._get_torch_save_params()[1]]
    for name, tensor in [*agent.policy.named_parameters(), *others]:
        if not torch.isfinite(tensor).all():
            return name
    for name, buffer in agent.policy.named_buffers():
        # A mask may hold infinities.
        if buffer.is_floating_point() and torch.isnan(buffer).any():
            return name
    normalizer = ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())
    for part in () if normalizer is None else (normalizer.mean, normalizer.var):
        if not all(np.isfinite(values).all() for values in part.values()):
            return "the statistics of the observations"
    return None

"""Wrappers that the manager itself offers by name in `env.wrappers`, or adds to the chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.lasting import accounts, load_accounts
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.seeding import seed_generators

# Below the seeds of evaluation episodes, see `rlzoo_plus.envs.seeding`.
_TRAINING_SEEDS = 2**29


class ReproducibleResets(gym.Wrapper):
    """Pass a fresh seed at each reset, drawn from a generator seeded by the first.

    Some environments draw a new generator from the system at each unseeded reset; behind this
    wrapper a run depends on its seed alone. An evaluation can also name the episodes' seeds.

    Attributes:
        episode_seed: The seed of the running episode, None before the first.
        has_own_process: Whether nothing else draws from the global generators of this process;
            they are seeded with each episode then.
    """

    has_own_process = False

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._seeds = np.random.default_rng()
        self._next_seeds: list[int] = []
        self.episode_seed: int | None = None

    def set_episode_seeds(self, seeds: Sequence[int]) -> None:
        """Use these seeds for the resets that follow, in this order."""
        self._next_seeds = [int(seed) for seed in seeds]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset with a seed, whether one is given or not."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        elif self._next_seeds:
            seed = self._next_seeds.pop(0)
        else:
            seed = int(self._seeds.integers(_TRAINING_SEEDS))
        self.episode_seed = seed
        if self.has_own_process:
            seed_generators(seed)
        return self.env.reset(seed=seed, options=options)

    def accounts(self) -> dict[str, Any]:
        """Return what parts of the chain remember between episodes, by their own account."""
        return accounts(self.env)

    def load_accounts(self, remembered: dict[str, Any]) -> str | None:
        """Give them their accounts back; return why one refuses it, or None."""
        return load_accounts(self.env, remembered)


class WarmupResets(gym.Wrapper):
    """Reset a few times before the first real reset.

    Several PyBullet environments load their robot at the first reset, and only the later ones
    depend on the seed alone.
    """

    def __init__(self, env: gym.Env, count: int) -> None:
        super().__init__(env)
        self._left = count

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, after the warm-up if this is the first."""
        while self._left:
            self._left -= 1
            with native_output_hidden():
                self.env.reset(seed=seed)
        return self.env.reset(seed=seed, options=options)


class MaskObservation(gym.ObservationWrapper):
    """Hide entries of a flat observation, e.g. velocities, to make a task partially observed."""

    def __init__(self, env: gym.Env, hidden: Sequence[int]) -> None:
        """Hide the entries with these indices.

        Args:
            env: An environment with observations of shape (n,).
            hidden: Indices of the entries that are set to zero.
        """
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"mask_observation needs a flat Box observation, not {space}")
        self._hidden = list(hidden)
        size = space.shape[0]
        if any(not 0 <= index < size for index in self._hidden):
            raise ValueError(f"hidden={self._hidden}: indices go from 0 to {size - 1}")
        low, high = space.low.copy(), space.high.copy()
        low[self._hidden], high[self._hidden] = 0, 0
        self.observation_space = spaces.Box(low, high, dtype=space.dtype)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation with the hidden entries at zero."""
        visible = observation.copy()
        visible[self._hidden] = 0
        return visible

"""Replay buffers that draw transitions with large errors more often, with n-step returns.

Prioritized replay (Schaul et al. 2016, arXiv 1511.05952) draws in proportion to |error|^alpha and
corrects the loss by importance weights. LAP (Fujimoto et al. 2020, arXiv 2007.06049) draws in
proportion to max(|error|, 1)^alpha and has a Huber loss instead of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.sum_tree import SumTree

_SMALLEST = 1e-6  # Added to an error, so that every transition can be drawn


@dataclass(frozen=True)
class PrioritySettings:
    """What the configuration says; no part of a checkpoint, so that it can change in a resume."""

    alpha: float  # How much errors count; 0 draws uniformly
    beta: float  # Exponent of the importance weights at the start of the training
    beta_end: float  # The same at its end; between them it is linear
    n_steps: int  # Of a return
    gamma: float  # Discount of a step

    def __post_init__(self) -> None:
        """Check the bounds."""
        for key in ("alpha", "beta", "beta_end"):
            value = getattr(self, key)
            if not (isinstance(value, (int, float)) and 0 <= value <= 1):
                raise ConfigError(
                    f"algo.hyperparams.replay_buffer_kwargs.{key}={value}: needs a number from 0 "
                    "to 1."
                )


class PrioritizedReplayBuffer(ReplayBuffer):
    """Proportional prioritized replay; `algo.replay_buffer=prioritized`.

    Attributes:
        priorities: |error|^alpha of each transition, shape (buffer_size, n_envs); 0 where there is
            none yet. A checkpoint holds them; the sums over them are made anew.
        max_priority: The largest so far, which new transitions get.
        progress: Share of the training that is done; beta follows it.
        weights: Importance weights of the newest batch, shape (batch_size, 1); None for none.
    """

    name = "prioritized"
    has_weights = True

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_end: float = 1.0,
        n_steps: int = 1,
        gamma: float = 0.99,
        **kwargs: Any,
    ) -> None:
        """Initialize without transitions.

        Args:
            *args: As for `ReplayBuffer`.
            alpha: As in `PrioritySettings`, and so the next four.
            beta: See there.
            beta_end: See there.
            n_steps: See there.
            gamma: See there.
            **kwargs: As for `ReplayBuffer`.

        Raises:
            ConfigError: A number is outside of its bounds, or the environment does not fit.
        """
        space = args[1] if len(args) > 1 else kwargs.get("observation_space")
        if isinstance(space, spaces.Dict):
            raise ConfigError(
                f"algo.replay_buffer={self.name} keeps arrays, and the environment has Dict "
                "observations. Add env.wrappers=[flatten_observation], or leave it out."
            )
        super().__init__(*args, **kwargs)
        self.settings = PrioritySettings(alpha, beta, beta_end, n_steps, gamma)
        self.priorities = np.zeros((self.buffer_size, self.n_envs))
        self.max_priority, self.progress = 1.0, 0.0
        self.weights: torch.Tensor | None = None
        self._tree = SumTree(self.priorities.reshape(-1))
        self._drawn: NDArray[np.int64] | None = None
        self._errors: NDArray[np.float64] | None = None

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add a transition of each environment, with the largest priority so far."""
        row = self.pos
        super().add(*args, **kwargs)
        self.priorities[row] = self.max_priority
        self._tree.touch(row * self.n_envs + np.arange(self.n_envs))

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Draw a batch: one transition of each of so many equal parts of the sum of priorities."""
        self.update_priorities()
        total = self._tree.total
        points = (np.arange(batch_size) + np.random.random_sample(batch_size)) * total / batch_size
        self._drawn = self._tree.find(points)
        rows, envs = np.divmod(self._drawn, self.n_envs)
        if self.has_weights:
            first, last = self.settings.beta, self.settings.beta_end
            beta = first + (last - first) * self.progress
            weights = (self.priorities[rows, envs] / total) ** -beta
            weights = (weights / weights.max()).astype(np.float32)
            self.weights = self.to_torch(weights.reshape(-1, 1))
        return self.transitions(rows, envs, env)

    def note_errors(self, errors: torch.Tensor) -> None:
        """Note errors of the batch that was drawn last; of several critics, the largest counts.

        Args:
            errors: Shape (batch_size, ...).
        """
        found = errors.detach().abs().reshape(len(errors), -1).amax(dim=1).cpu().numpy()
        found = found.astype(np.float64)
        self._errors = found if self._errors is None else np.maximum(self._errors, found)

    def update_priorities(self) -> bool:
        """Give the transitions drawn last their priorities; return whether errors were noted."""
        errors, drawn = self._errors, self._drawn
        # Nothing of a batch is left when a checkpoint is written.
        self._errors = self._drawn = self.weights = None
        if errors is None or drawn is None:
            return False
        found = self.priority_of(errors)
        self.max_priority = max(self.max_priority, float(found.max()))
        self.priorities.reshape(-1)[drawn] = found
        self._tree.touch(drawn)
        return True

    def priority_of(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the priorities of transitions with these absolute errors."""
        return (errors + _SMALLEST) ** self.settings.alpha

    def check_priorities(self) -> None:
        """Check the priorities that a checkpoint gave.

        Raises:
            ValueError: One is not a number above 0, or there is one without a transition.
        """
        used = self.size()
        values = np.append(self.priorities[:used], self.max_priority)
        if not (np.isfinite(values).all() and values.min() > 0) or self.priorities[used:].any():
            raise ValueError("the replay buffer's priorities are not those of its transitions")

    def transitions(
        self, rows: NDArray[np.int64], envs: NDArray[np.int64], env: Any = None
    ) -> ReplayBufferSamples:
        """Return transitions with returns of up to `n_steps`, cut where an episode ends.

        Args:
            rows: Their rows, shape (batch_size,).
            envs: Their environments, shape (batch_size,).
            env: Normalizes them, if there is one.
        """
        n_steps, gamma = self.settings.n_steps, self.settings.gamma
        steps = np.arange(n_steps)
        at, of = (rows[:, None] + steps) % self.buffer_size, envs[:, None]
        newest = (self.pos - 1) % self.buffer_size
        ends = (self.dones[at, of] > 0) | (self.timeouts[at, of] > 0) | (at == newest)
        last = np.where(ends.any(axis=1), ends.argmax(axis=1), n_steps - 1)
        rewards = self._normalize_reward(self.rewards[at, of], env)
        discounts = gamma ** steps.astype(np.float32)
        returns = (rewards * discounts * (steps <= last[:, None])).sum(axis=1, keepdims=True)
        final = at[np.arange(len(rows)), last]
        dones = self.dones[final, envs] * (1 - self.timeouts[final, envs])
        batch = (
            self._normalize_obs(self.observations[rows, envs], env),
            self.actions[rows, envs],
            self._normalize_obs(self.next_observations[final, envs], env),
            dones.reshape(-1, 1),
            returns.astype(np.float32),
        )
        tensors = [self.to_torch(part) for part in batch]  # type: ignore[arg-type]
        if n_steps > 1:
            powers = gamma ** (last + 1).astype(np.float32)
            tensors.append(self.to_torch(powers.reshape(-1, 1)))
        return ReplayBufferSamples(*tensors)


class LapReplayBuffer(PrioritizedReplayBuffer):
    """Loss-adjusted prioritized replay; `algo.replay_buffer=lap`."""

    name = "lap"
    has_weights = False

    def __init__(self, *args: Any, alpha: float = 0.4, **kwargs: Any) -> None:
        """Initialize without transitions; see `PrioritizedReplayBuffer`."""
        unknown = {"beta", "beta_end"} & kwargs.keys()
        if unknown:
            raise ConfigError(
                f"algo.hyperparams.replay_buffer_kwargs.{min(unknown)}: algo.replay_buffer=lap has "
                "no importance weights. Leave it out, or use prioritized."
            )
        super().__init__(*args, alpha=alpha, **kwargs)

    def priority_of(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the priorities of transitions with these absolute errors."""
        return np.maximum(errors, 1.0) ** self.settings.alpha

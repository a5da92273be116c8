"""Exploration that Stable-Baselines3 lacks, as mixins: scheduled noise, Boltzmann, parameters.

The number of the schedule follows the share of the run that is done. All state is plain attributes
of the agent and NumPy's generator, which checkpoints hold.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from rlzoo_plus.config.exploration import BONUS, NOISES, ExplorationConfig

Actions = tuple[NDArray[Any], NDArray[Any]]  # For the environments, and for the buffer
_ADAPT_EVERY, _ADAPT_BY = 50, 1.01


def mixins_of(exploration: ExplorationConfig) -> list[type]:
    """Return what the class of an algorithm gets."""
    if exploration.kind == BONUS:
        return []
    kinds: dict[str, type] = {"boltzmann": _Boltzmann, "parameter_noise": _ParameterNoise}
    kind = kinds.get(str(exploration.kind), _ScheduledNoise)
    assert kind is not _ScheduledNoise or exploration.kind in NOISES
    return [type(kind.__name__, (kind,), {"exploration": exploration, "__module__": __name__})]


class _Explorer:
    """Base of the mixins."""

    exploration: ExplorationConfig

    def _present_value(self) -> float:
        """Return the number of the schedule, and log it."""
        value = self.exploration.value(1.0 - self._current_progress_remaining)  # type: ignore[attr-defined]
        self.logger.record("rollout/exploration", value)  # type: ignore[attr-defined]
        return value

    def _is_warming_up(self, learning_starts: int) -> bool:
        return bool(self.num_timesteps < learning_starts)  # type: ignore[attr-defined]

    def _observation(self) -> Any:
        return self.policy.obs_to_tensor(self._last_obs)[0]  # type: ignore[attr-defined]


class _ScheduledNoise(_Explorer):
    """Action noise whose standard deviation changes."""

    def _sample_action(self, learning_starts: int, action_noise: Any, n_envs: int = 1) -> Actions:
        assert self.exploration.start is not None
        share = self._present_value() / self.exploration.start
        return super()._sample_action(  # type: ignore[misc, no-any-return]
            learning_starts, lambda: share * action_noise(), n_envs
        )


class _Boltzmann(_Explorer):
    """Actions in proportion to exp(value / temperature)."""

    def _sample_action(self, learning_starts: int, *args: Any, **kwargs: Any) -> Actions:
        temperature = self._present_value()
        if self._is_warming_up(learning_starts):
            return super()._sample_action(learning_starts, *args, **kwargs)  # type: ignore[misc, no-any-return]
        with torch.no_grad():
            policy: Any = self.policy  # type: ignore[attr-defined]
            if hasattr(policy, "quantile_net"):
                values = policy.quantile_net(self._observation()).mean(dim=1)
            else:
                values = policy.q_net(self._observation())
        logits = values.cpu().numpy().astype(np.float64) / temperature
        # The largest of these sums is distributed so (Gumbel).
        actions = (logits + np.random.gumbel(size=logits.shape)).argmax(axis=1)
        return actions, actions


@functools.lru_cache(maxsize=2)
def _directions(seed: int, shapes: tuple[tuple[int, ...], ...], device: str) -> list[Tensor]:
    """Return standard normal noise for parameters, always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes]


class _ParameterNoise(_Explorer):
    """Noise on the weights of the actor, the same for an episode (Plappert et al. 2018).

    It is added to the present weights. Its size is adapted such that actions differ by the
    number of the schedule, in units of the action range. With several environments, a new noise
    begins for all when one of them ends an episode.

    Attributes:
        noise_seed: Draws the noise of the present episode.
        noise_size: Standard deviation of the noise; -1 before the first step.
        noise_episode: The number of episodes when it began.
        noise_distances: Sum of squared differences of actions since the last adaptation.
        noise_steps: How many are in the sum.
    """

    noise_seed: int = 0
    noise_size: float = -1.0
    noise_episode: int = -1
    noise_distances: float = 0.0
    noise_steps: int = 0

    def _sample_action(self, learning_starts: int, *args: Any, **kwargs: Any) -> Actions:
        wanted = self._present_value()
        if self._is_warming_up(learning_starts):
            return super()._sample_action(learning_starts, *args, **kwargs)  # type: ignore[misc, no-any-return]
        if self.noise_episode != self._episode_num:  # type: ignore[attr-defined]
            self.noise_episode = int(self._episode_num)  # type: ignore[attr-defined]
            self.noise_seed = int(np.random.randint(2**31))
        if self.noise_size < 0:
            self.noise_size = wanted
        with torch.no_grad():
            actor: Any = self.actor  # type: ignore[attr-defined]
            observation = self._observation()
            clean, noisy = actor(observation), functional_call(actor, self._noisy(), observation)
        self._adapt(float(((clean - noisy) ** 2).mean()), wanted)
        action = np.clip(noisy.cpu().numpy(), -1, 1)
        action = action.reshape((-1, *self.action_space.shape))  # type: ignore[attr-defined]
        return self.policy.unscale_action(action), action  # type: ignore[attr-defined]

    def _noisy(self) -> dict[str, Tensor]:
        """Return the weights of the actor with noise."""
        weights = dict(self.actor.named_parameters())  # type: ignore[attr-defined]
        shapes = tuple(tuple(value.shape) for value in weights.values())
        noise = _directions(self.noise_seed, shapes, str(self.device))  # type: ignore[attr-defined]
        pairs = zip(weights.items(), noise, strict=True)
        return {name: value + self.noise_size * part for (name, value), part in pairs}

    def _adapt(self, squared: float, wanted: float) -> None:
        """Make the noise larger or smaller, where actions differ less or more than is wanted."""
        self.noise_distances += squared
        self.noise_steps += 1
        if self.noise_steps >= _ADAPT_EVERY:
            distance = (self.noise_distances / self.noise_steps) ** 0.5
            self.noise_size *= _ADAPT_BY if distance < wanted else 1 / _ADAPT_BY
            self.noise_distances, self.noise_steps = 0.0, 0
            self.logger.record("rollout/parameter_noise", self.noise_size)  # type: ignore[attr-defined]

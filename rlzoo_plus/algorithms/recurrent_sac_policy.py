"""The networks of recurrent SAC: an LSTM between features extractor and layers, of each network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.policies import BaseModel, ContinuousCritic
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN, Actor, SACPolicy
from torch import Tensor, nn

from rlzoo_plus.algorithms.sequences import over_steps

Memory = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, each of shape (layers, n, units)."""


class _WithLstm(BaseModel):
    """Mixin for a network: an LSTM follows its features extractor."""

    lstm: nn.LSTM

    def unroll(self, observations: Any, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Return what the LSTM gives after each step, and its state after the last.

        Args:
            observations: As tensors, shape (time, n, ...), or a dictionary of such.
            memory: The state before; empty if None.

        Returns:
            Shape (time, n, units), and the state.
        """
        found: tuple[Tensor, Memory] = self.lstm(over_steps(self.features, observations), memory)
        return found

    def lstm_step(self, observation: Any, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Return what the LSTM gives after one step, shape (n, units), and its state.

        Args:
            observation: As tensors, shape (n, ...), or a dictionary of such.
            memory: The state before; empty if None.
        """
        found, memory = self.lstm(self.features(observation).unsqueeze(0), memory)
        assert memory is not None
        return found.squeeze(0), memory

    def features(self, observation: Any) -> Tensor:
        """Return what the features extractor gives, shape (n, size)."""
        return self.extract_features(observation, self.features_extractor)  # type: ignore[arg-type]


class RecurrentActor(_WithLstm, Actor):
    """The distribution of actions, by what its LSTM remembers of the episode."""

    action_dist: SquashedDiagGaussianDistribution  # type: ignore[assignment]

    def __init__(
        self, features_dim: int, lstm_hidden_size: int, n_lstm_layers: int, **kwargs: Any
    ) -> None:
        """Build the networks, as `Actor`, after an LSTM of this size."""
        super().__init__(features_dim=lstm_hidden_size, **kwargs)
        self.lstm = nn.LSTM(features_dim, lstm_hidden_size, n_lstm_layers)

    def distribution(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and logarithms of standard deviations, both before squashing."""
        hidden = self.latent_pi(latent)
        log_std = self.log_std(hidden)  # type: ignore[operator]
        return self.mu(hidden), log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return random actions and the logarithms of their densities.

        Args:
            latent: What the LSTM gave, shape (n, units).

        Returns:
            Shapes (n, action_dim) and (n,).
        """
        return self.action_dist.log_prob_from_params(*self.distribution(latent))

    def get_action_dist_params(self, obs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return means and logarithms of standard deviations at the first step of an episode."""
        return *self.distribution(self.lstm_step(obs)[0]), {}


class RecurrentCritic(_WithLstm, ContinuousCritic):
    """Several critics, of actions and of what one LSTM remembers of the episode."""

    def __init__(
        self, features_dim: int, lstm_hidden_size: int, n_lstm_layers: int, **kwargs: Any
    ) -> None:
        """Build the networks, as `ContinuousCritic`, after an LSTM of this size."""
        super().__init__(features_dim=lstm_hidden_size, **kwargs)
        self.lstm = nn.LSTM(features_dim, lstm_hidden_size, n_lstm_layers)

    def features(self, observation: Any) -> Tensor:
        """Return what the features extractor gives; that of the actor learns from the actor."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.share_features_extractor):
            return super().features(observation)

    def values(self, latent: Tensor, actions: Tensor) -> Tensor:
        """Return the values that each critic gives, shape (n_critics, n).

        Args:
            latent: What the LSTM gave, shape (n, units).
            actions: Scaled to [-1, 1], shape (n, action_dim).
        """
        both = torch.cat([latent, actions], dim=1)
        return torch.stack([network(both).squeeze(1) for network in self.q_networks])

    def forward(self, obs: Any, actions: Tensor) -> tuple[Tensor, ...]:
        """Return the values at the first step of an episode, each of shape (n, 1)."""
        values = self.values(self.lstm_step(obs)[0], actions)
        return tuple(values.unsqueeze(-1))


class RecurrentSACPolicy(SACPolicy):
    """Actor, critics and target critics, each with a memory of its own."""

    actor: RecurrentActor
    critic: RecurrentCritic
    critic_target: RecurrentCritic

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Box,
        lr_schedule: Callable[[float], float],
        net_arch: list[int] | dict[str, list[int]] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        use_sde: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        lstm_hidden_size: int = 128,
        n_lstm_layers: int = 1,
    ) -> None:
        """Build the networks; arguments as of Stable-Baselines3's `SACPolicy`, but these.

        Args:
            observation_space: What is observed.
            action_space: The actions.
            lr_schedule: Learning rate by the share of the training that is left.
            net_arch: Hidden layers after the LSTM: a list, or `{"pi": [...], "qf": [...]}`.
            activation_fn: Between layers.
            use_sde: Must be false.
            features_extractor_class: What observations pass first.
            features_extractor_kwargs: Its arguments.
            normalize_images: Whether images are divided by 255.
            optimizer_class: Of actor and critics.
            optimizer_kwargs: Its arguments but the learning rate.
            n_critics: How many critics.
            share_features_extractor: Whether critics take over the actor's features extractor.
            lstm_hidden_size: Units of a layer of an LSTM.
            n_lstm_layers: Layers of an LSTM.
        """
        self._lstm_kwargs = {"lstm_hidden_size": lstm_hidden_size, "n_lstm_layers": n_lstm_layers}
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch,
            activation_fn,
            use_sde,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            n_critics=n_critics,
            share_features_extractor=share_features_extractor,
        )

    @property
    def lstm_actor(self) -> nn.LSTM:
        """The memory of the actor, under the name that it has in sb3-contrib's policies."""
        return self.actor.lstm

    def make_actor(self, features_extractor: Any = None) -> RecurrentActor:
        """Return a new actor."""
        kwargs = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return RecurrentActor(**kwargs, **self._lstm_kwargs).to(self.device)

    def make_critic(self, features_extractor: Any = None) -> RecurrentCritic:
        """Return new critics."""
        kwargs = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return RecurrentCritic(**kwargs, **self._lstm_kwargs).to(self.device)

    def empty_memory(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the state before an episode, of the actor and some environments."""
        shape = (self.lstm_actor.num_layers, count, self.lstm_actor.hidden_size)
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def act(self, observation: Any, memory: Memory, deterministic: bool) -> tuple[Tensor, Memory]:
        """Return the actions of one step in [-1, 1], shape (n, action_dim), and the new state.

        Args:
            observation: As tensors, shape (n, ...), or a dictionary of such.
            memory: The state before.
            deterministic: Act without exploration.
        """
        latent, memory = self.actor.lstm_step(observation, memory)
        mean, log_std = self.actor.distribution(latent)
        distribution = self.actor.action_dist
        return distribution.actions_from_params(mean, log_std, deterministic), memory

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Choose actions.

        Args:
            observation: One or a batch, shape (..., *observation_space.shape).
            state: What the last call returned; None at first.
            episode_start: Which of the batch begin an episode, shape (n,).
            deterministic: Act without exploration.

        Returns:
            Actions within the action space's bounds, and the state for the next call.
        """
        self.set_training_mode(False)
        tensors, is_batch = self.obs_to_tensor(observation)
        first = next(iter(tensors.values())) if isinstance(tensors, dict) else tensors
        hidden, cell = state if state is not None else self.empty_memory(len(first))
        starts = np.zeros(len(first), bool) if episode_start is None else episode_start
        keep = 1.0 - torch.as_tensor(starts, device=self.device).float().reshape(1, -1, 1)
        before = [keep * torch.as_tensor(part, device=self.device) for part in (hidden, cell)]
        with torch.no_grad():
            chosen, after = self.act(tensors, (before[0], before[1]), deterministic)
        shape = (-1, *(self.action_space.shape or ()))
        actions = self.unscale_action(chosen.cpu().numpy().reshape(shape))
        memory = tuple(part.cpu().numpy() for part in after)
        return (actions if is_batch else actions.squeeze(0)), memory

    def _get_constructor_parameters(self) -> dict[str, Any]:
        known = super()._get_constructor_parameters()
        for name in ("log_std_init", "use_expln", "clip_mean"):
            known.pop(name, None)
        own = {"share_features_extractor": self.share_features_extractor, **self._lstm_kwargs}
        return {**known, **own}


class RecurrentSACCnnPolicy(RecurrentSACPolicy):
    """The policy for images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the networks, as `RecurrentSACPolicy`."""
        super().__init__(*args, **{"features_extractor_class": NatureCNN, **kwargs})


class RecurrentSACMultiInputPolicy(RecurrentSACPolicy):
    """The policy for dictionaries."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the networks, as `RecurrentSACPolicy`."""
        super().__init__(*args, **{"features_extractor_class": CombinedExtractor, **kwargs})

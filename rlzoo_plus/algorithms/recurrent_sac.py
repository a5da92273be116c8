"""Soft Actor-Critic with a memory: actor and critics have an LSTM each.

As the recurrent baselines of Yang and Nguyen (2021, arXiv 2110.12628) and Ni et al. (2022, arXiv
2110.05038): the memories of actor and critics are separate, and learn from sequences of the replay
buffer that begin with an empty one. Otherwise as Stable-Baselines3's SAC, on its own class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.sac.sac import SAC
from torch import Tensor

from rlzoo_plus.algorithms.recurrent_sac_policy import (
    RecurrentActor,
    RecurrentCritic,
    RecurrentSACCnnPolicy,
    RecurrentSACMultiInputPolicy,
    RecurrentSACPolicy,
)
from rlzoo_plus.algorithms.sac_updates import SacUpdates, descend
from rlzoo_plus.algorithms.sequences import (
    DictSequenceReplayBuffer,
    SequenceReplayBuffer,
    Sequences,
)


class RecurrentSAC(SacUpdates, SAC):
    """Soft Actor-Critic whose policy and critics remember the episode."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpLstmPolicy": RecurrentSACPolicy,
        "CnnLstmPolicy": RecurrentSACCnnPolicy,
        "MultiInputLstmPolicy": RecurrentSACMultiInputPolicy,
    }
    policy: RecurrentSACPolicy
    actor: RecurrentActor
    critic: RecurrentCritic
    critic_target: RecurrentCritic

    def __init__(
        self,
        policy: str | type[RecurrentSACPolicy],
        env: Any,
        learning_rate: float | Callable[[float], float] = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 16,
        sequence_length: int = 20,
        burn_in: int = 10,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        """Build the agent; arguments as of Stable-Baselines3's `SAC`, but these.

        Args:
            policy: `MlpLstmPolicy`, `CnnLstmPolicy`, `MultiInputLstmPolicy`, or a class.
            env: Environment with continuous actions.
            learning_rate: Of actor, critics and the weight of the entropy.
            buffer_size: Transitions kept.
            learning_starts: Steps before the first update.
            batch_size: Sequences of an update.
            sequence_length: The most steps of a sequence that are learned from.
            burn_in: The most steps before them, which only fill the memory.
            tau: Weight of the new parameters in an update of the target critics.
            gamma: Discount.
            train_freq: Steps between updates.
            gradient_steps: Updates each time.
            action_noise: Added to the actions.
            replay_buffer_kwargs: Arguments of the replay buffer.
            ent_coef: Weight of the entropy; `auto`, or `auto_0.1` to begin there.
            target_update_interval: Updates between two updates of the target critics.
            target_entropy: In nats; `auto` is minus the number of actions.
            stats_window_size: Episodes in the logged means.
            tensorboard_log: Folder of TensorBoard's files.
            policy_kwargs: Arguments of the policy.
            verbose: What is printed.
            seed: Of all random numbers.
            device: Where the networks are.
        """
        self.sequence_length, self.burn_in = sequence_length, burn_in
        super().__init__(
            policy,
            env,
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            tau,
            gamma,
            train_freq,
            gradient_steps,
            action_noise,
            replay_buffer_kwargs=replay_buffer_kwargs,
            ent_coef=ent_coef,
            target_update_interval=target_update_interval,
            target_entropy=target_entropy,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def _setup_model(self) -> None:
        is_dict = isinstance(self.observation_space, spaces.Dict)
        self.replay_buffer_class = DictSequenceReplayBuffer if is_dict else SequenceReplayBuffer
        self.replay_buffer_kwargs = {
            **self.replay_buffer_kwargs,
            "sequence_length": self.sequence_length,
            "burn_in": self.burn_in,
        }
        super()._setup_model()
        self._memory: tuple[np.ndarray, ...] | None = self.policy.empty_memory(self.n_envs)

    def networks(self) -> tuple[RecurrentActor, RecurrentCritic, RecurrentCritic]:
        """Return actor, critics and target critics."""
        return self.actor, self.critic, self.critic_target

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        starts: Any = self._last_episode_starts
        observation: Any = self._last_obs
        # Random actions at the start of a training are latent, too.
        chosen, self._memory = self.policy.predict(observation, self._memory, starts)
        if self.num_timesteps < learning_starts:
            chosen = np.array([self.action_space.sample() for _ in range(n_envs)])
        scaled = self.policy.scale_action(chosen)
        if action_noise is not None:
            scaled = np.clip(scaled + action_noise(), -1, 1)
        return self.policy.unscale_action(scaled), scaled

    def _store_transition(
        self,
        replay_buffer: Any,
        buffer_action: np.ndarray,
        new_obs: Any,
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        self._last_episode_starts = dones

    def update(self, batch: Sequences) -> dict[str, float]:
        """Update entropy weight, critics and actor with a batch; return what is logged."""
        learned = batch.learned
        rewards, dones, done = batch.rewards[learned], batch.dones[learned], batch.actions[learned]
        latent, _ = self.actor.unroll(batch.observations)
        actions, log_prob = self.actor.sample(latent[:-1][learned])
        weight, logged = self.entropy_weight(-log_prob.detach())
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.sample(latent[1:][learned])
            after, _ = self.critic_target.unroll(batch.observations)
            values = self.critic_target.values(after[1:][learned], next_actions).min(dim=0).values
            targets = rewards + (1 - dones) * self.gamma * (values - weight * next_log_prob)
        seen = _without_last(batch.observations)
        latent, _ = self.critic.unroll(seen)
        values = self.critic.values(latent[learned], done)
        critic_loss = 0.5 * (values - targets).square().mean(dim=1).sum()
        descend(self.critic.optimizer, critic_loss)
        with torch.no_grad():
            latent, _ = self.critic.unroll(seen)
        lowest = self.critic.values(latent[learned], actions).min(dim=0).values
        actor_loss = (weight * log_prob - lowest).mean()
        descend(self.actor.optimizer, actor_loss)
        return {**logged, "actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}


def _without_last(observations: Any) -> Any:
    """Return the observations of sequences without the last step."""
    if isinstance(observations, dict):
        return {key: part[:-1] for key, part in observations.items()}
    tensor: Tensor = observations
    return tensor[:-1]

"""Demonstrations in every batch of an off-policy algorithm, beside what it experiences (RLPD).

Ball et al., "Efficient Online Reinforcement Learning with Offline Data", 2023: a share of each
batch, half of it there, is of demonstrations.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from rlzoo_plus.demonstrations.dataset import Dataset, rows_of
from rlzoo_plus.errors import ConfigError


@functools.cache
def with_demonstrations(kind: Any) -> type:
    """Return a subclass of a replay buffer, a share of whose batches is of demonstrations.

    Its attribute `demonstrations` is a buffer full of them, no part of a run's state;
    `demonstrated_share` is their share.
    """

    class MixedReplayBuffer(kind):  # type: ignore[misc]
        demonstrations: Any = None
        demonstrated_share: float = 0.0

        def sample(self, batch_size: int, env: Any = None) -> Any:
            """Draw a batch, demonstrations last."""
            count = round(self.demonstrated_share * batch_size)
            own = super().sample(batch_size - count, env)
            shown = self.demonstrations.sample(count, env)
            return type(own)(*(_joined(a, b) for a, b in zip(own, shown, strict=True)))

    # Updates are recorded with it if they are with the buffer that it inherits from.
    MixedReplayBuffer.__qualname__ = MixedReplayBuffer.__name__
    return MixedReplayBuffer


def mix(agent: Any, dataset: Dataset, share: float) -> None:
    """Let an agent's replay buffer hold demonstrations, too.

    Raises:
        ConfigError: A batch would have no room for both, or its buffer relabels goals.
    """
    buffer, size = agent.replay_buffer, agent.batch_size
    if not 0 < round(share * size) < size:
        raise ConfigError(
            f"data.share={share:g} of algo.hyperparams.batch_size={size} leaves no room for both. "
            "Choose a share nearer to 0.5, or a larger batch."
        )
    kind: Any = type(buffer)
    if issubclass(kind, HerReplayBuffer):
        raise ConfigError(
            f"data={dataset.about.get('dataset_id', 'DATASET')}: hindsight replay relabels its own "
            "episodes alone. Use algo=sac, or algo.replay_buffer=dict."
        )
    shown: Any = kind(
        max(dataset.n_steps, 1),
        agent.observation_space,
        agent.action_space,
        device=agent.device,
        n_envs=1,
        **agent.replay_buffer_kwargs,
    )
    _fill(shown, agent, dataset)
    buffer.__class__ = with_demonstrations(kind)
    buffer.demonstrations, buffer.demonstrated_share = shown, share


def _fill(buffer: Any, agent: Any, dataset: Dataset) -> None:
    for episode in dataset.episodes:
        actions = episode.actions
        if isinstance(agent.action_space, spaces.Box):
            low, high = agent.action_space.low, agent.action_space.high
            actions = agent.policy.scale_action(np.clip(actions, low, high))
        for at in range(episode.n_steps):
            ends = at + 1 == episode.n_steps
            buffer.add(
                rows_of(episode.observations, slice(at, at + 1)),
                rows_of(episode.observations, slice(at + 1, at + 2)),
                actions[at : at + 1],
                episode.rewards[at : at + 1],
                np.array([ends]),
                [{"TimeLimit.truncated": ends and not episode.terminated}],
            )


def _joined(own: Any, shown: Any) -> Any:
    if isinstance(own, dict):
        return {key: _joined(part, shown[key]) for key, part in own.items()}
    return None if own is None else torch.cat([own, shown])

"""The parts of agents of Stable-Baselines3 as the protocols of `protocols.py`.

The adapters add no algorithm: each calls what the agent does itself. Training a run needs none.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.contracts.protocols import Batch, Rows, each
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.values import Values


class SB3Module:
    """The policy and the critic of an agent of Stable-Baselines3, as an `RLModule`."""

    def __init__(self, agent: Any) -> None:
        """Share the agent's networks."""
        self._policy = Policy.of_agent(_checked(agent))
        self._values = Values(self._policy)

    def act(self, observations: Rows, *, deterministic: bool = True) -> np.ndarray:
        """Act as `predict` of Stable-Baselines3."""
        return self._policy.predict(observations, deterministic=deterministic)[0]

    def value(self, observations: Rows, actions: Rows = None) -> np.ndarray:
        """Return V, or the lowest of several Q."""
        chosen = self.act(observations) if actions is None else np.asarray(actions)
        values: np.ndarray = self._values(observations, chosen, np.ones(len(chosen), bool))
        return values


class SB3Buffer:
    """A replay buffer of Stable-Baselines3, as a `ReplayBuffer`."""

    def __init__(self, buffer: SB3ReplayBuffer) -> None:
        """Share the buffer; what it keeps of actions is as the algorithm stores them."""
        self._buffer = buffer

    def add(self, batch: Batch) -> None:
        """Add whole steps: a transition of each environment at a time.

        Raises:
            ValueError: The batch ends within a step.
        """
        n_envs = self._buffer.n_envs
        if len(batch) % n_envs:
            raise ValueError(f"{len(batch)} transitions are no multiple of n_envs={n_envs}")
        for start in range(0, len(batch), n_envs):
            step = batch.select(slice(start, start + n_envs))
            infos = [dict(info) for info in step.infos] or [{} for _ in range(n_envs)]
            self._buffer.add(
                step.observations,
                step.next_observations,
                step.actions,
                step.rewards,
                step.dones,
                infos,
            )

    def sample(self, size: int) -> Batch:
        """Draw as the buffer does; an end by a time limit is none there."""
        if not len(self):
            raise ValueError("the replay buffer is empty")
        found = self._buffer.sample(size)
        rewards, dones = found.rewards.reshape(-1), found.dones.reshape(-1)
        return Batch(found.observations, found.actions, rewards, dones, found.next_observations)

    def __len__(self) -> int:
        return int(self._buffer.size()) * self._buffer.n_envs


class SB3Collector:
    """The rollouts of an agent of Stable-Baselines3, as a `Collector`."""

    def __init__(self, agent: Any) -> None:
        """Begin its episodes; the agent must not be in its own `learn`."""
        self._agent = _checked(agent)
        _, self._callback = agent._setup_learn(sys.maxsize, None)
        self._callback.on_training_start({}, {})

    def collect(self) -> Batch:
        """Collect as the agent's own loop; its replay buffer stays as it is.

        Of an on-policy agent, the next observation after an end is the first of the next episode.
        """
        agent: Any = self._agent
        if is_on_policy(agent):
            rollout = agent.rollout_buffer
            agent.collect_rollouts(agent.env, self._callback, rollout, agent.n_steps)
            ends = [rollout.episode_starts[1:], agent._last_episode_starts[None]]
            seen, last = rollout.observations, agent._last_obs
            parts = {
                "observations": seen,
                "actions": rollout.actions,
                "rewards": rollout.rewards,
                "dones": np.concatenate(ends).astype(bool),
                "next_observations": _shifted(seen, last),
            }
            flat: dict[str, Any] = {name: each(part, _flat) for name, part in parts.items()}
            return Batch(**flat)
        kept = _Kept()
        agent.collect_rollouts(
            agent.env,
            self._callback,
            agent.train_freq,
            kept,
            agent.action_noise,
            agent.learning_starts,
        )
        return Batch.merge(kept.steps)


def _shifted(seen: Rows, last: Rows) -> Rows:
    """Return what was observed one step later; `last` is after all of them."""
    if isinstance(seen, dict):
        return {key: _shifted(part, last[key]) for key, part in seen.items()}
    return np.concatenate([seen[1:], last.reshape(1, *seen.shape[1:])])


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:]).copy()


class _Kept:
    """Takes the place of a replay buffer, and keeps what is added."""

    def __init__(self) -> None:
        self.steps: list[Batch] = []

    def add(
        self, seen: Rows, following: Rows, actions: Rows, rewards: Rows, dones: Rows, infos: Any
    ) -> None:
        named = {"observations": seen, "actions": actions, "rewards": rewards, "dones": dones}
        copied: dict[str, Any] = {
            name: each(part, np.array)
            for name, part in {**named, "next_observations": following}.items()
        }
        self.steps.append(Batch(**copied, infos=list(infos)))


class SB3Trainer:
    """The updates of an agent of Stable-Baselines3, as a `Trainer`.

    An on-policy agent learns from its last rollout, the one that its collector returned last.
    """

    def __init__(self, agent: Any) -> None:
        """Share the agent."""
        self._agent = _checked(agent)

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Update as `train` of the agent, off-policy with one gradient step.

        Raises:
            ValueError: Of an on-policy agent, the batch is not as long as its rollout.
        """
        agent: Any = self._agent
        agent.set_logger(logger := Logger(None, []))
        if is_on_policy(agent):
            if len(batch) != agent.n_steps * agent.n_envs:
                raise ValueError("an on-policy agent learns from the whole of its last rollout")
            agent.train()
        else:
            held, agent.replay_buffer = agent.replay_buffer, _Given(batch.to(agent.device))
            try:
                agent.train(gradient_steps=1, batch_size=len(batch))
            finally:
                agent.replay_buffer = held
        found = logger.name_to_value.items()
        return {name.removeprefix("train/"): float(value) for name, value in found}

    def eval_step(self, batch: Batch) -> dict[str, float]:
        """Return the losses of an update that is taken back."""
        agent: Any = self._agent
        names = agent._get_torch_save_params()[1]
        before = copy.deepcopy(agent.get_parameters())
        tensors = {name: getattr(agent, name).detach().clone() for name in names}
        n_updates = agent._n_updates
        with generators_kept():
            losses = self.train_step(batch)
        agent.set_parameters(before, exact_match=True, device=agent.device)
        for name, tensor in tensors.items():
            getattr(agent, name).data.copy_(tensor)
        agent._n_updates = n_updates
        return losses


class _Given:
    """Takes the place of a replay buffer that draws a certain batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        del batch_size, env
        one = self._batch
        dones, rewards = one.dones.float().reshape(-1, 1), one.rewards.float().reshape(-1, 1)
        actions = one.actions if one.actions.is_floating_point() else one.actions.long()
        actions = actions.reshape(len(one), -1)
        return ReplayBufferSamples(one.observations, actions, one.next_observations, dones, rewards)


def is_on_policy(agent: Any) -> bool:
    """Return whether an agent learns from its own rollouts alone."""
    return isinstance(agent, OnPolicyAlgorithm)


def _checked(agent: Any) -> Any:
    """Return an agent that the adapters can take.

    Raises:
        ConfigError: It is none of SB3's, or normalises.
    """
    name = type(agent).__name__
    if not (is_on_policy(agent) or isinstance(agent, OffPolicyAlgorithm)):
        raise ConfigError(f"{name} is no on- or off-policy algorithm of Stable-Baselines3.")
    if agent.get_vec_normalize_env() is not None:
        raise ConfigError(
            f"this {name} has VecNormalize, and a batch has observations and rewards as they are. "
            "Build it with normalize=false."
        )
    # Recorded updates read the replay buffer's own memory.
    if hasattr(agent, "recorded"):
        agent.recorded = None
    return agent

"""`JointUpdates`: the mixin that makes PPO, A2C and TRPO of one rank a part of a joint training.

Their own `train` of Stable-Baselines3 runs, on this rank's share of each minibatch. Advantages are
normalized over the joint minibatch, gradients are averaged before they are clipped, and the limit
on the KL divergence is compared with the mean of all ranks. So a step is that of one process with
the joint minibatch.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from torch import Tensor

from rlzoo_plus.envs.monitor import EPISODE
from rlzoo_plus.envs.plain_state import is_plain, to_plain
from rlzoo_plus.envs.seeding import generators_kept, seed_generators
from rlzoo_plus.ranks.group import Group, Order
from rlzoo_plus.ranks.statistics_of_ranks import merge, statistics_of
from rlzoo_plus.training.resume import agent_state

_COLUMNS = ("actions", "values", "log_probs", "advantages", "returns")
_SMALLEST = 1e-8  # as in Stable-Baselines3


class Ranks(Protocol):
    """What an agent needs to know of the other ranks."""

    group: Group

    def order(self, order: Order) -> None:
        """Tell the others what to do; only rank 0 does."""

    def note_episodes(self, episodes: list[tuple[int, int, dict[str, Any], Any]]) -> None:
        """Take the episodes of all ranks, at rank 0."""


class JointUpdates:
    """Mixin for an algorithm, before any that makes it faster; without `ranks` it does nothing.

    Attributes:
        ranks: The other ranks, None in a process that trains alone.
        episodes: Those that have ended in this rollout: step, environment, its numbers, success.
    """

    ranks: Ranks | None = None
    episodes: list[tuple[int, int, dict[str, Any], Any]]

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> bool:
        """Collect a rollout, while the others do; merge statistics and gather episodes."""
        collect = super().collect_rollouts  # type: ignore[misc]
        if self.ranks is None:
            return bool(collect(*args, **kwargs))
        self.ranks.order(Order.ROLLOUT)
        goes_on = self.collect_share(*args, **kwargs)
        self.ranks.order(Order.EXCHANGE)
        self.exchange()
        return goes_on

    def collect_share(self, *args: Any, **kwargs: Any) -> bool:
        """Collect this rank's part of a rollout."""
        self.episodes = []
        self._common = [part.copy() for part in statistics_of(self)]
        # Callbacks see the steps of all ranks: those of the others are added before each step.
        self._count_others()
        goes_on = bool(super().collect_rollouts(*args, **kwargs))  # type: ignore[misc]
        if goes_on:
            self._count_others(-1)
        return goes_on

    def _count_others(self, times: int = 1) -> None:
        assert self.ranks is not None
        self.num_timesteps: int
        self.num_timesteps += times * (self.ranks.group.size - 1) * self.n_envs  # type: ignore[attr-defined]

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: Any = None) -> None:
        """Note the episodes that have ended; rank 0 gets those of all ranks after the rollout."""
        if self.ranks is None:
            super()._update_info_buffer(infos, dones)  # type: ignore[misc]
            return
        first = self.ranks.group.rank * len(infos)
        for index, info in enumerate(infos):
            episode = info.get(EPISODE)
            success = info.get("is_success") if dones is not None and dones[index] else None
            if episode is not None or success is not None:
                numbers = {k: to_plain(v) for k, v in (episode or {}).items() if is_plain(v)}
                self.episodes.append((self.num_timesteps, first + index, numbers, success))
        self._count_others()

    def exchange(self) -> None:
        """Merge the statistics of all ranks, and give rank 0 their episodes."""
        assert self.ranks is not None
        merge(statistics_of(self), self._common, self.ranks.group)
        found = self.ranks.group.gather([list(episode) for episode in self.episodes])
        self.episodes = []
        self.ranks.note_episodes(
            sorted((tuple(e) for part in found for e in part), key=lambda episode: episode[:2])
        )

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks together with the other ranks."""
        update = super().train  # type: ignore[misc]
        if self.ranks is None:
            update(*args, **kwargs)
            return
        self.ranks.order(Order.UPDATE)
        group = self.ranks.group
        # What is logged here, and nothing that waits for the next row of the log.
        self._logger: Logger
        logger, self._logger = self._logger, Logger(None, [])
        try:
            # TRPO searches along a line, and decides at each point of it.
            is_trpo = hasattr(self, "hessian_vector_product")
            with _joint_rollout(self, group) if is_trpo else _joint_steps(self, group):
                update(*args, **kwargs)
            logged = self._logger
        finally:
            self._logger = logger
        names = sorted(logged.name_to_value)
        values = [float(logged.name_to_value[name]) for name in names]
        means = group.total(torch.tensor(values, dtype=torch.float64)) / group.size
        for name, value in zip(names, means.tolist(), strict=True):
            logger.record(name, value, exclude=logged.name_to_excluded[name])
        buffers = [b for b in self.policy.buffers() if b.is_floating_point()]  # type: ignore[attr-defined]
        with torch.no_grad():
            group.average(buffers)  # of batch normalization; most policies have none

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "ranks", "episodes", "_common"]  # type: ignore[misc]


@contextlib.contextmanager
def _joint_steps(agent: Any, group: Group) -> Iterator[None]:
    """Let the updates inside be those of the joint minibatches, by averages of gradients."""
    policy, buffer = agent.policy, agent.rollout_buffer
    max_norm, normalizes = agent.max_grad_norm, agent.normalize_advantage
    target = getattr(agent, "target_kl", None)
    samples_of = buffer.get

    def joint_samples(batch_size: int | None = None) -> Iterator[Any]:
        batches = list(samples_of(batch_size))
        if normalizes:
            advantages = _normalized([batch.advantages for batch in batches], group)
            batches = [b._replace(advantages=a) for b, a in zip(batches, advantages, strict=True)]
        yield from batches

    def average(*_: Any) -> None:
        group.average([p.grad for p in policy.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(policy.parameters(), max_norm)

    hook = policy.optimizer.register_step_pre_hook(average)
    buffer.get, agent.normalize_advantage = joint_samples, False
    # The gradients of one rank are not clipped.
    agent.max_grad_norm = float("inf")
    if target is not None:
        agent.target_kl = JointLimit(target, group)
    try:
        yield
    finally:
        hook.remove()
        del buffer.get
        agent.normalize_advantage, agent.max_grad_norm = normalizes, max_norm
        if target is not None:
            agent.target_kl = target


def _normalized(advantages: list[Tensor], group: Group) -> list[Tensor]:
    """Return the advantages of minibatches, each normalized over the joint minibatch."""
    moments = torch.zeros(len(advantages), 3, dtype=torch.float64)
    for row, part in zip(moments, advantages, strict=True):
        values = part.double()
        row[:] = torch.stack([torch.ones_like(values).sum(), values.sum(), values.square().sum()])
    result = []
    for part, (count, first, second) in zip(advantages, group.total(moments).tolist(), strict=True):
        mean = first / count
        variance = max(second - count * mean * mean, 0.0) / (count - 1)
        result.append((part - mean) / (math.sqrt(variance) + _SMALLEST))
    return result


class JointLimit:
    """A limit that all ranks compare with the mean of what each has found: one decision for all."""

    # NumPy must leave the comparison to this class.
    __array_ufunc__ = None

    def __init__(self, value: float, group: Group) -> None:
        self._value, self._group = value, group

    def __rmul__(self, factor: float) -> JointLimit:
        return JointLimit(factor * self._value, self._group)

    def __lt__(self, found: Any) -> bool:
        mean = (
            self._group.total(torch.tensor([float(found)], dtype=torch.float64)) / self._group.size
        )
        return bool(mean.item() > self._value)


@contextlib.contextmanager
def _joint_rollout(agent: Any, group: Group) -> Iterator[None]:
    """Let the update inside be made of the rollouts of all ranks, by each rank alike."""
    buffer, n_envs, batch_size = agent.rollout_buffer, agent.rollout_buffer.n_envs, agent.batch_size

    def joined(array: np.ndarray) -> np.ndarray:
        return np.concatenate(group.of_all(array), axis=1)

    if isinstance(buffer.observations, dict):
        buffer.observations = {key: joined(part) for key, part in buffer.observations.items()}
    else:
        buffer.observations = joined(buffer.observations)
    for name in _COLUMNS:
        setattr(buffer, name, joined(getattr(buffer, name)))
    buffer.n_envs, agent.batch_size = n_envs * group.size, batch_size * group.size
    seed = int(group.from_first(torch.tensor([np.random.randint(2**31)])))
    try:
        # All ranks draw the same order of samples.
        with generators_kept():
            seed_generators(seed)
            yield
    finally:
        buffer.n_envs, agent.batch_size = n_envs, batch_size


def hash_of(agent: Any) -> np.ndarray:
    """Return a hash of all that the ranks of an agent must have in common, 8 bytes."""
    digest = hashlib.sha256()
    for name, tensor in agent.policy.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    for part in statistics_of(agent):
        digest.update(np.asarray(part.mean).tobytes() + np.asarray(part.var).tobytes())
    return np.frombuffer(digest.digest()[:8], np.uint8)


def shared_parameters(agent: Any) -> dict[str, Any]:
    """Return what all ranks learn together: networks, optimizers and learned tensors."""
    state = agent_state.capture(agent)
    return {"parameters": state["parameters"], "tensors": state["tensors"]}

"""The contract of the parts of an agent: what acts, collects, keeps transitions and learns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from rlzoo_plus.contracts.protocols import Batch, Collector, ReplayBuffer, RLModule, Trainer, each


@dataclass(frozen=True)
class Parts:
    """The parts of one agent; they share its networks, and nothing has been collected yet.

    Attributes:
        module: Acts.
        collector: Of at least two steps an iteration.
        buffer: Empty, with room for two iterations; its rows are those of the collector.
        trainer: Of the module.
        n_envs: Environments that the collector steps.
        on_policy: Whether the trainer takes only what the collector returned last.
    """

    module: RLModule
    collector: Collector
    buffer: ReplayBuffer
    trainer: Trainer
    n_envs: int = 1
    on_policy: bool = False


class PartsContract:
    """The suite for parts: the fixture `parts` returns new ones."""

    @pytest.fixture
    def parts(self) -> Parts:
        """Return the parts of a new agent."""
        raise NotImplementedError("give the suite a fixture `parts`")

    def test_each_part_has_the_methods_of_its_protocol(self, parts: Parts) -> None:
        assert isinstance(parts.module, RLModule)
        assert isinstance(parts.collector, Collector)
        assert isinstance(parts.buffer, ReplayBuffer)
        assert isinstance(parts.trainer, Trainer)

    def test_it_collects_whole_transitions_in_the_order_of_time(self, parts: Parts) -> None:
        batch, n_envs = parts.collector.collect(), parts.n_envs
        assert len(batch) >= 2 * n_envs
        assert len(batch) % n_envs == 0
        for name in ("observations", "actions", "rewards", "dones", "next_observations"):
            each(getattr(batch, name), lambda a: _has_rows(a, len(batch)))
        assert not batch.infos or len(batch.infos) == len(batch)
        goes_on = np.flatnonzero(~_array(batch.dones)[:-n_envs].astype(bool).reshape(-1))
        reached, left = batch.select(goes_on), batch.select(goes_on + n_envs)
        _same(reached.next_observations, left.observations)

    def test_it_acts_for_each_observation_and_the_same_without_exploration(
        self, parts: Parts
    ) -> None:
        batch = parts.collector.collect()
        actions = parts.module.act(batch.observations)
        assert len(actions) == len(batch)
        np.testing.assert_array_equal(actions, parts.module.act(batch.observations))
        one = parts.module.act(batch.select(slice(0, 1)).observations)
        np.testing.assert_allclose(one[0], actions[0], rtol=1e-4, atol=1e-5)
        assert len(parts.module.act(batch.observations, deterministic=False)) == len(batch)

    def test_it_says_a_finite_value_of_each_observation(self, parts: Parts) -> None:
        seen = parts.collector.collect().observations
        values = parts.module.value(seen)
        assert np.shape(values) == (len(parts.module.act(seen)),)
        assert np.isfinite(values).all()
        chosen = parts.module.value(seen, parts.module.act(seen))
        np.testing.assert_allclose(chosen, values, rtol=1e-5)

    def test_the_buffer_returns_what_was_added_to_it(self, parts: Parts) -> None:
        batch = parts.collector.collect()
        assert len(parts.buffer) == 0
        with pytest.raises(ValueError, match="empty"):
            parts.buffer.sample(1)
        parts.buffer.add(batch)
        assert len(parts.buffer) == len(batch)
        drawn = parts.buffer.sample(7)
        assert len(drawn) == 7
        assert isinstance(drawn.rewards, torch.Tensor)
        added = set(map(tuple, _rows(batch)))
        assert {tuple(row) for row in _rows(drawn)} <= added

    def test_an_update_changes_what_it_does_and_an_evaluation_nothing(self, parts: Parts) -> None:
        batch = self._to_learn_from(parts)
        seen = batch.select(slice(0, 8)).observations
        seen = each(seen, _array)
        before = parts.module.value(seen)
        torch.manual_seed(3)
        drawn = torch.rand(1)
        torch.manual_seed(3)
        losses = parts.trainer.eval_step(batch)
        assert losses
        assert all(math.isfinite(loss) for loss in losses.values())
        np.testing.assert_array_equal(parts.module.value(seen, parts.module.act(seen)), before)
        assert torch.rand(1) == drawn
        losses = parts.trainer.train_step(batch)
        assert losses
        assert all(math.isfinite(loss) for loss in losses.values())
        assert np.any(parts.module.value(seen) != before)

    def _to_learn_from(self, parts: Parts) -> Batch:
        batch = parts.collector.collect()
        if parts.on_policy:
            return batch
        parts.buffer.add(batch)
        return parts.buffer.sample(len(batch))


def _has_rows(array: Any, count: int) -> None:
    assert len(array) == count


def _array(value: Any) -> np.ndarray:
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _same(one: Any, other: Any) -> None:
    left: list[np.ndarray] = []
    right: list[np.ndarray] = []
    each(one, lambda a: left.append(_array(a)))
    each(other, lambda a: right.append(_array(a)))
    for mine, yours in zip(left, right, strict=True):
        np.testing.assert_array_equal(mine, yours)


def _rows(batch: Batch) -> list[list[float]]:
    parts: list[np.ndarray] = []
    for rows in (batch.observations, batch.actions, batch.rewards):
        each(rows, lambda a: parts.append(_array(a).astype(np.float32).reshape(len(batch), -1)))
    found: list[list[float]] = np.concatenate(parts, axis=1).tolist()
    return found

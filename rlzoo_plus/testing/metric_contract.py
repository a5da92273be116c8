"""The contract of every metric of evaluation episodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rlzoo_plus.training.metrics import EpisodeMeter, EpisodeMetric

_LENGTH = 12


class MetricContract:
    """The suite for metrics: the fixture `metric` returns a new one.

    Override `steps` if the metric needs infos or observations of a kind of its own.
    """

    @pytest.fixture
    def metric(self) -> EpisodeMetric:
        """Return the metric."""
        raise NotImplementedError("give the suite a fixture `metric`")

    def steps(self, seed: int) -> list[tuple[Any, Any, float, dict[str, Any]]]:
        """Return an episode: observation, action, reward and info of each step."""
        rng = np.random.default_rng(seed)
        return [
            (rng.normal(size=4).astype(np.float32), rng.uniform(-1, 1, 2), float(rng.normal()), {})
            for _ in range(_LENGTH)
        ]

    def test_it_says_finite_numbers(self, metric: EpisodeMetric) -> None:
        numbers = _play(metric, self.steps(0))
        assert all(math.isfinite(number) for number in numbers.values())
        meter = EpisodeMeter({"mine": lambda: metric})
        for step in self.steps(0):
            meter.step(*step)
        assert meter.end() == {f"mine/{k}" if k else "mine": v for k, v in numbers.items()}

    def test_an_episode_depends_on_nothing_before_it(self, metric: EpisodeMetric) -> None:
        first = _play(metric, self.steps(0))
        _play(metric, self.steps(1))
        assert _play(metric, self.steps(0)) == first

    def test_an_episode_that_was_given_up_leaves_nothing(self, metric: EpisodeMetric) -> None:
        first = _play(metric, self.steps(0))
        metric.begin()
        metric.step(*self.steps(1)[0])
        assert _play(metric, self.steps(0)) == first

    def test_an_episode_of_one_step_is_measured(self, metric: EpisodeMetric) -> None:
        assert all(math.isfinite(v) for v in _play(metric, self.steps(0)[:1]).values())

    def test_what_it_is_shown_stays_as_it_is(self, metric: EpisodeMetric) -> None:
        steps = self.steps(0)
        before = copy.deepcopy(steps)
        _play(metric, steps)
        for one, other in zip(steps, before, strict=True):
            np.testing.assert_equal(one[:3], other[:3])
            assert one[3].keys() == other[3].keys()


def _play(metric: EpisodeMetric, steps: list[tuple[Any, Any, float, dict[str, Any]]]) -> Any:
    metric.begin()
    for step in steps:
        metric.step(*step)
    numbers = metric.end()
    if isinstance(numbers, Mapping):
        return dict(numbers)
    return {} if numbers is None else {"": numbers}

"""Metrics of evaluation episodes: their protocol, the shipped ones, and how they are called.

A metric watches the episodes of one environment and returns a number, or several by name, for each.
The record of an evaluation holds their means. To add one, write a class with the three methods of
`EpisodeMetric` and name it in `eval.metrics`.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlzoo_plus.artifacts.result import EvaluationRecord
from rlzoo_plus.config.catalog import METRICS
from rlzoo_plus.config.references import reveal
from rlzoo_plus.envs.monitor import is_number
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import where_raised

log = logging.getLogger(__name__)
# Names of what is recorded of every evaluation.
_TAKEN = {
    *EvaluationRecord.__annotations__,
    *("mean_episode_length", "reward", "end", "violations", "shield"),
}


class EpisodeMetric(Protocol):
    """What measures episodes: for each, `begin`, then `step` for every step, then `end`.

    One object watches one environment; nothing but the steps it is shown should decide its numbers.
    """

    def begin(self) -> None:
        """Forget the episode before."""

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Observe a step; the arguments must not be changed.

        Args:
            observation: What the policy saw, before normalisation; a mapping if it is a `Dict`.
            action: Its action: an array, or a number if the action space is discrete.
            reward: The reward, before normalisation.
            info: The environment's info of the step.
        """

    def end(self) -> float | Mapping[str, float] | None:
        """Return the number of the episode, several by name, or None if there is nothing to say."""


MetricMaker = Callable[[], EpisodeMetric]


class ActionChange:
    """Mean absolute change of the action from step to step, over its entries: low is smooth."""

    def begin(self) -> None:
        """Forget the episode before."""
        self._last: Any = None
        self._total, self._count = 0.0, 0

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Compare the action with the one before; of discrete actions, count those that differ."""
        del observation, reward, info
        now = np.asarray(action)
        if self._last is not None:
            is_discrete = np.issubdtype(now.dtype, np.integer)
            change = now != self._last if is_discrete else np.abs(now - self._last)
            self._total += float(np.mean(change))
            self._count += 1
        self._last = now

    def end(self) -> float | None:
        """Return the mean, None after a single step."""
        return self._total / self._count if self._count else None


class Energy:
    """Sum of `energy` [J] in the infos, or of `power` [W] times `dt` [s]."""

    def begin(self) -> None:
        """Forget the episode before."""
        self._total: float | None = None

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Add the energy of the step."""
        del observation, action, reward
        spent = info.get("energy")
        if spent is None and "power" in info and "dt" in info:
            spent = info["power"] * info["dt"]
        if spent is not None:
            self._total = (self._total or 0.0) + float(spent)

    def end(self) -> float | None:
        """Return the sum, None if the infos have neither."""
        return self._total


def load_metrics(entries: Sequence[str | Mapping[str, Any]]) -> dict[str, MetricMaker]:
    """Load the metrics of `eval.metrics`, and make each once to see that it can be.

    Returns:
        What makes each, by the name it is recorded under: the shipped or installed one, or that of
        the class in lower case with underscores.

    Raises:
        ConfigError: One cannot be loaded or made, or has the name of another.
    """
    makers: dict[str, MetricMaker] = {}
    for entry in entries:
        for path, kwargs in [(entry, None)] if isinstance(entry, str) else entry.items():
            found = METRICS.load(path)
            make = functools.partial(found, **reveal(kwargs or {}, "eval.metrics"))
            try:
                make()
            # User code can raise anything.
            except Exception as error:
                where = f"eval.metrics: {path} with {kwargs or {}}"
                raise ConfigError(f"{where}: {where_raised(error)}.") from error
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.rpartition(".")[2]).lower()
            if name in makers or name in _TAKEN:
                raise ConfigError(
                    f"eval.metrics: {path} would be recorded as {name}, which is there already. "
                    "Give the class another name, or leave it out."
                )
            makers[name] = make
    return makers


class EpisodeMeter:
    """Shows the episodes of one environment to all metrics.

    A metric that raises is left out from then on: it costs its numbers, never the training.
    """

    def __init__(self, makers: Mapping[str, MetricMaker]) -> None:
        """Make the metrics of one environment, by the name under which each is recorded."""
        self._metrics: dict[str, Any] = dict(makers)
        self._metrics = self._each(lambda _, make: make())
        self._begin()

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Show a step."""
        self._each(lambda _, metric: metric.step(observation, action, reward, info))

    def end(self) -> dict[str, float]:
        """Return the numbers of the episode by name, and begin the next."""
        measured = self._each(_numbers)
        self._begin()
        return {key: value for numbers in measured.values() for key, value in numbers.items()}

    def _begin(self) -> None:
        self._each(lambda _, metric: metric.begin())

    def _each(self, call: Callable[[str, Any], Any]) -> dict[str, Any]:
        """Call something for each metric; return the results of those that did not raise."""
        results = {}
        for name, metric in list(self._metrics.items()):
            try:
                results[name] = call(name, metric)
            # User code can raise anything.
            except Exception as error:
                del self._metrics[name]
                _warn(name, f"{type(error).__name__}: {error}")
        return results


def _numbers(name: str, metric: EpisodeMetric) -> dict[str, float]:
    found = metric.end()
    if found is None:
        return {}
    values: dict[str, Any] = {name: found}
    if isinstance(found, Mapping):
        values = {f"{name}/{key}": value for key, value in found.items()}
    for value in values.values():
        if not is_number(value):
            raise TypeError(f"end() returned {value!r}, which is not a number")
    return {key: float(value) for key, value in values.items()}


@functools.cache
def _warn(name: str, problem: str) -> None:
    # Cached: once in a process.
    log.warning("eval.metrics: %s is left out of the evaluations: %s", name, problem)

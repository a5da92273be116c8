"""Metrics of evaluation episodes: the protocol, those that are shipped, and how they are played.

A metric watches the episodes of one environment and says a number, or several by name, for each.
The record of an evaluation holds their means. Adding one takes a class with the three methods of
`EpisodeMetric`; `eval.metrics` names it.
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
_TAKEN = {*EvaluationRecord.__annotations__, "mean_episode_length", "reward", "end", "violations"}


class EpisodeMetric(Protocol):
    """What measures episodes: for each, `begin`, then `step` for every step, then `end`.

    One object watches one environment; nothing but the steps it is shown should decide its numbers.
    """

    def begin(self) -> None:
        """Forget the episode before."""

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """See a step; nothing that is given may be changed.

        Args:
            observation: What the policy saw, before normalisation; a mapping if it is a `Dict`.
            action: What it did: an array, or a number if the action space is discrete.
            reward: What it got for that, before normalisation.
            info: What the environment told of the step.
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
    """Sum of what the infos tell as `energy` [J], or of `power` [W] times `dt` [s]."""

    def begin(self) -> None:
        """Forget the episode before."""
        self._total: float | None = None

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Add what the step took."""
        del observation, action, reward
        spent = info.get("energy")
        if spent is None and "power" in info and "dt" in info:
            spent = info["power"] * info["dt"]
        if spent is not None:
            self._total = (self._total or 0.0) + float(spent)

    def end(self) -> float | None:
        """Return the sum, None if the infos do not tell."""
        return self._total


def load_metrics(entries: Sequence[str | Mapping[str, Any]]) -> dict[str, MetricMaker]:
    """Load the metrics that a configuration names, and make each once to see that it can be.

    Args:
        entries: As in `eval.metrics`.

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
            # The user's code.
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
    """Shows the episodes of one environment to all metrics; one that fails is left out from then.

    What a metric of the user's does wrong costs its numbers, never the training.
    """

    def __init__(self, makers: Mapping[str, MetricMaker]) -> None:
        """Make the metrics of one environment.

        Args:
            makers: By the name under which each is recorded.
        """
        self._metrics: dict[str, EpisodeMetric] = {}
        for name, make in makers.items():
            self._try(name, lambda name=name, make=make: self._metrics.update({name: make()}))  # type: ignore[misc]
        self._begin()

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Show a step."""
        for name, metric in list(self._metrics.items()):
            self._try(name, functools.partial(metric.step, observation, action, reward, info))

    def end(self) -> dict[str, float]:
        """Return what the metrics say of the episode, by name, and begin the next."""
        told: dict[str, float] = {}
        for name, metric in list(self._metrics.items()):
            self._try(name, lambda name=name, metric=metric: told.update(_numbers(name, metric)))  # type: ignore[misc]
        self._begin()
        return told

    def _begin(self) -> None:
        for name, metric in list(self._metrics.items()):
            self._try(name, metric.begin)

    def _try(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        # Whatever a class of the user's raises.
        except Exception as error:
            self._metrics.pop(name, None)
            _warn(name, f"{type(error).__name__}: {error}")


def _numbers(name: str, metric: EpisodeMetric) -> dict[str, float]:
    told = metric.end()
    if told is None:
        return {}
    values = {f"{name}/{key}": v for key, v in told.items()} if isinstance(told, Mapping) else None
    values = {name: told} if values is None else values
    for value in values.values():
        if not is_number(value):
            raise TypeError(f"end() returned {value!r}, which is not a number")
    return {key: float(value) for key, value in values.items()}


@functools.cache
def _warn(name: str, problem: str) -> None:
    """Say once in a process what is wrong with a metric."""
    log.warning("eval.metrics: %s is left out of the evaluations: %s", name, problem)

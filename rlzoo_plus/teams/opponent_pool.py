"""A pool of opponents: frozen policies of a run, each with a rating."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.agents.policy import Policy, load_weights, weights_of
from rlzoo_plus.artifacts.bundle import check_step
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.finite import require_finite
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.teams.one_sided import AT_RANDOM

# A rating is the logarithm of odds: 400 points are 10 to 1.
_POINTS_PER_DECADE = 400.0


def expected_score(rating: float, other: float) -> float:
    """Return the score that a player is expected to have, from 0 to 1 (Elo 1978)."""
    return float(1.0 / (1.0 + 10.0 ** ((other - rating) / _POINTS_PER_DECADE)))


@dataclass
class Opponent:
    """A policy of a run as it was at a step."""

    step: int
    rating: float
    policy: Policy


class OpponentPool:
    """The opponents of a run, named by their steps, and the rating of the policy that learns.

    Attributes:
        rating: Of the policy that learns.
        opponents: The oldest first. Older ones than the newest `pool` only finish their episodes.
    """

    def __init__(self, config: RunConfig) -> None:
        assert config.env.opponents is not None
        self._config, self.settings = config, config.env.opponents
        self.rating = self.settings.elo_start
        self.opponents: list[Opponent] = []

    def find(self, step: int) -> Opponent | None:
        """Return an opponent, None if it is not here."""
        return next((one for one in self.opponents if one.step == step), None)

    def add(self, step: int, agent: Any, in_use: Collection[int]) -> None:
        """Freeze an agent's policy, and drop those too old that are not `in_use`.

        Raises:
            RunError: A weight is NaN or infinite.
        """
        require_finite(agent)
        weights, normalizer = weights_of(agent)
        spaces = agent.observation_space, agent.action_space
        policy = self._policy(spaces, weights, normalizer)
        self.opponents.append(Opponent(step, self.rating, policy))
        old, new = self.opponents[: -self.settings.pool], self.drawn
        self.opponents = [one for one in old if one.step in in_use] + new

    def draw(self, random: np.random.Generator) -> int:
        """Return who is the next opponent: the newest, or any of the newest `pool`."""
        drawn = self.drawn
        if not drawn:
            return AT_RANDOM
        is_newest = random.random() < self.settings.latest_ratio
        return drawn[-1 if is_newest else int(random.integers(len(drawn)))].step

    def act(self, step: int, observations: Any, masks: np.ndarray | None, seed: int) -> np.ndarray:
        """Return the actions of an opponent, drawn as in training.

        Args:
            step: Which one.
            observations: As the worlds give them, shape (n, ...), or a dictionary of such.
            masks: Allowed actions, shape (n, n_actions), for an algorithm that takes them.
            seed: Decides what is drawn.
        """
        found = self.find(step)
        assert found is not None
        # What opponents draw must not change what the training draws.
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        try:
            return found.policy.predict(observations, deterministic=False, action_masks=masks)[0]
        finally:
            torch.default_generator.set_state(before)

    @property
    def drawn(self) -> list[Opponent]:
        """Those that new episodes are played against."""
        return self.opponents[-self.settings.pool :]

    @property
    def is_maskable(self) -> bool:
        """Whether the policies take masks of actions."""
        return get_algorithm(self._config.algo.name).maskable

    def rate(self, step: int, score: float) -> None:
        """Change the ratings after an episode.

        Args:
            step: The opponent.
            score: 1 if the policy that learns has won, 0.5 for a draw, 0 if it has lost.

        Acting at random keeps its rating.
        """
        found = self.find(step)
        other = self.settings.elo_start if found is None else found.rating
        change = self.settings.elo_k * (score - expected_score(self.rating, other))
        self.rating += change
        if found is not None:
            found.rating -= change

    def state(self) -> dict[str, Any]:
        """Return the ratings, and weights and statistics of all opponents, as plain data."""
        return {"rating": self.rating, "opponents": [_state_of(one) for one in self.opponents]}

    def restore(self, state: Mapping[str, Any], agent: Any) -> None:
        """Restore what `state` returned; nothing of it is executed.

        Raises:
            ValueError: It is malformed.
            ConfigError: Weights are not those of the run's policy.
        """
        rating, saved = state["rating"], state["opponents"]
        self.rating = _checked_rating(rating)
        steps = [check_step(one["step"]) for one in saved]
        if steps != sorted(set(steps)):
            raise ValueError("the opponents are not in the order of their steps")
        spaces = agent.observation_space, agent.action_space
        self.opponents = []
        for one in saved:
            if not all(isinstance(value, np.ndarray) for value in one["weights"].values()):
                raise ValueError(f"the weights of the opponent of step {one['step']} are no arrays")
            normalizer = ObservationNormalizer.from_state(one["normalization"])
            if normalizer is not None:
                normalizer.check_fits(spaces[0])
            policy = self._policy(spaces, one["weights"], normalizer)
            self.opponents.append(Opponent(one["step"], _checked_rating(one["rating"]), policy))

    def _policy(
        self,
        spaces: Sequence[Any],
        weights: dict[str, np.ndarray],
        normalizer: ObservationNormalizer | None,
    ) -> Policy:
        with generators_kept():
            network = make_policy(self._config, *spaces)
        load_weights(network, weights)
        return Policy(network, normalizer, maskable=self.is_maskable)


def _state_of(opponent: Opponent) -> dict[str, Any]:
    state, normalizer = opponent.policy.network.state_dict(), opponent.policy.normalizer
    return {
        "step": opponent.step,
        "rating": opponent.rating,
        "weights": {name: value.numpy().copy() for name, value in state.items()},
        "normalization": None if normalizer is None else normalizer.state(),
    }


def _checked_rating(rating: Any) -> float:
    if type(rating) is not float or not math.isfinite(rating):
        raise ValueError(f"a rating is {rating!r}")
    return rating

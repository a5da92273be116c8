"""A world of PettingZoo's parallel form, which can be played again from the seed of its episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces


class StepOfWorld:
    """What a step of a world gave, by agent."""

    def __init__(self, given: Any) -> None:
        self.observations, self.rewards, self.terminations, self.truncations, self.infos = given

    def then(self, later: StepOfWorld) -> StepOfWorld:
        """Return this step and the next one as a single step."""
        total = {
            agent: float(self.rewards.get(agent, 0.0)) + float(later.rewards.get(agent, 0.0))
            for agent in {**self.rewards, **later.rewards}
        }
        parts = ("observations", "terminations", "truncations", "infos")
        seen, *others = ({**getattr(self, part), **getattr(later, part)} for part in parts)
        return StepOfWorld((seen, total, *others))


class World:
    """A world of PettingZoo's parallel API, and how it got to where it is."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.own_action: Callable[[Any, Any], Any] = lambda _, action: action
        self.seed, self.team_return = 0, 0.0
        self.returns: dict[str, float] = {}
        self._taken: list[dict[str, Any]] = []
        self._seen: Any = None

    @property
    def n_steps(self) -> int:
        """Steps since the episode began."""
        return len(self._taken)

    def is_idle(self, agent: str) -> bool:
        """Return whether an agent is not in the world now."""
        return agent not in self.inner.agents

    def sees(self, agent: Any) -> Any:
        """Return what an agent saw last."""
        return self._seen[agent]

    def numbers(self, agent: Any) -> dict[str, float]:
        """Return what an agent has earned in the episode."""
        return {str(agent): self.returns[agent]}

    def begin(self, seed: int, agents: Sequence[str]) -> Mapping[str, Any]:
        """Begin an episode."""
        self.seed, self.team_return = seed, 0.0
        self.returns, self._taken = dict.fromkeys(agents, 0.0), []
        self._seen, _ = self.inner.reset(seed=seed)
        seen: Mapping[str, Any] = self._seen
        return seen

    def own(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the agents' own actions from those of their rows."""
        return {agent: self.own_action(agent, action) for agent, action in actions.items()}

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield the own actions of each step of the episode so far."""
        return map(self.own, self._taken)

    def step(self, actions: Mapping[str, Any]) -> StepOfWorld:
        """Act with the actions of the agents that are there."""
        taken = {agent: actions[agent] for agent in self.inner.agents}
        step = StepOfWorld(self.inner.step(self.own(taken)))
        self._taken.append(taken)
        self._seen = step.observations
        for agent, reward in step.rewards.items():
            self.returns[agent] += float(reward)
            self.team_return += float(reward)
        return step

    def state(self, action_space: spaces.Space[Any]) -> dict[str, Any]:
        """Return the seed, all actions since, and what the agents saw last."""
        shape, agents = action_space.shape or (), list(self.returns)  # in their order
        actions = np.zeros((self.n_steps, len(agents), *shape), action_space.dtype)
        there = np.zeros((self.n_steps, len(agents)), bool)
        for at, taken in enumerate(self._taken):
            for rank, agent in enumerate(agents):
                if agent in taken:
                    actions[at, rank], there[at, rank] = taken[agent], True
        seen = [self._seen.get(agent) for agent in agents]
        return {"seed": self.seed, "actions": actions, "there": there, "seen": seen}

    def play_again(self, state: Mapping[str, Any], agents: Sequence[str]) -> None:
        """Come to where another world was.

        Raises:
            ValueError: It comes out otherwise.
        """
        self.begin(int(state["seed"]), agents)
        for actions, there in zip(state["actions"], state["there"], strict=True):
            now = {agent for agent, is_there in zip(agents, there, strict=True) if is_there}
            if now != set(self.inner.agents):
                raise ValueError("an episode that is played again has other agents")
            self.step(dict(zip(agents, actions, strict=True)))
        if not is_same([self._seen.get(agent) for agent in agents], state["seen"]):
            raise ValueError("an episode that is played again comes out otherwise")


def is_same(one: Any, other: Any) -> bool:
    """Return whether nested observations are equal, NaN included."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if one is None or other is None:
        return one is other
    left, right = np.asarray(one), np.asarray(other)
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")

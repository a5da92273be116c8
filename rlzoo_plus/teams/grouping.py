"""Which agents of a world share a policy, where each group of them has its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.grouped import GROUP, KINDS, GroupedActions
from rlzoo_plus.errors import ConfigError

_SpaceOf = Callable[[Any], spaces.Space[Any]]


class Grouping:
    """The groups of a world's agents, and what a row of the batch is for each.

    Attributes:
        space: Space of the observation of a row, see `rlzoo_plus.envs.grouped`.
        action_space: Space of the action of a row.
    """

    def __init__(
        self,
        env_id: str,
        patterns: Mapping[str, Sequence[str]],
        agents: Sequence[Any],
        spaces_of: tuple[_SpaceOf, _SpaceOf],
    ) -> None:
        """Put agents into groups.

        Args:
            env_id: For errors.
            patterns: For each group, patterns of the names of its agents.
            agents: All of the world.
            spaces_of: What returns the observation and the action space of an agent.

        Raises:
            ConfigError: An agent is in no group or in several, or its spaces are not its group's.
        """
        self._group_of = {agent: _group_of(agent, patterns) for agent in agents}
        for name, given in patterns.items():
            if name not in self._group_of.values():
                raise ConfigError(
                    f"env.groups: {name}={list(given)} has no agent of {env_id}; there are "
                    f"{', '.join(map(str, agents))}."
                )
        sees, acts = (self._spaces(patterns, space_of) for space_of in spaces_of)
        self.action_space = GroupedActions(acts)
        self.space = spaces.Dict({**sees, GROUP: spaces.MultiBinary(len(patterns))})
        self._nothing = {name: np.zeros(s.shape or (), s.dtype) for name, s in sees.items()}
        self._place = dict(zip(patterns, np.eye(len(patterns), dtype=np.int8), strict=True))

    def _spaces(
        self, patterns: Mapping[str, Sequence[str]], space_of: _SpaceOf
    ) -> dict[str, spaces.Space[Any]]:
        found: dict[str, spaces.Space[Any]] = {}
        for agent, name in self._group_of.items():
            space = space_of(agent)
            if not isinstance(space, KINDS):
                raise ConfigError(
                    f"env.groups: {agent} has the space {type(space).__name__}, and groups need "
                    f"one of {', '.join(kind.__name__ for kind in KINDS)}."
                )
            if found.setdefault(name, space) != space:
                raise ConfigError(
                    f"env.groups: {agent} has the space {space}, and others of {name} "
                    f"{found[name]}. Agents of a group need the same: make more groups."
                )
        return {name: found[name] for name in patterns}

    def seen(self, agent: Any, observation: Any = None) -> dict[str, Any]:
        """Return the observation of an agent's row; None stands for one that is not there."""
        name = self._group_of[agent]
        row = {**self._nothing, GROUP: self._place[name]}
        return row if observation is None else {**row, name: observation}

    def action(self, agent: Any, row: Any) -> Any:
        """Return an agent's own action from its row of actions."""
        return self.action_space.own(self._group_of[agent], np.asarray(row))

    def group_of(self, agent: Any) -> list[Any]:
        """Return the agents of an agent's group."""
        name = self._group_of[agent]
        return [other for other, its in self._group_of.items() if its == name]

    def returns(self, returns: Mapping[Any, float]) -> dict[str, float]:
        """Return the sum of the returns of each group's agents, as `group/NAME`."""
        sums = dict.fromkeys(self._place, 0.0)
        for agent, value in returns.items():
            sums[self._group_of[agent]] += value
        return {f"{GROUP}/{name}": value for name, value in sums.items()}


def _group_of(agent: Any, patterns: Mapping[str, Sequence[str]]) -> str:
    found = [
        name
        for name, given in patterns.items()
        if any(fnmatchcase(str(agent), pattern) for pattern in given)
    ]
    if len(found) != 1:
        where = " and ".join(found) or f"none of {', '.join(patterns)}"
        raise ConfigError(
            f"env.groups: {agent} is in {where}. Each agent needs one group; a pattern such as "
            "agent_* takes several."
        )
    return found[0]

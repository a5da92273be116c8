"""Games of PettingZoo whose agents act in turns, as worlds in which all act at once.

A step is a turn: what the others choose in it has no effect. They see whose turn it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import conversions

TURN, MASK = "turn", "action_mask"


def in_parallel(made: Any) -> Any:
    """Return a world in PettingZoo's parallel form, one whose agents act in turns converted.

    What changes only when all have acted keeps its steps, and any other game gets ``Turns``.
    """
    if not isinstance(made, AECEnv):
        return made
    if made.metadata.get("is_parallelizable"):
        return conversions.aec_to_parallel(made)
    return Turns(made)


class Turns(ParallelEnv):  # type: ignore[misc]
    """A game, one turn a step.

    Observations are a ``Dict``: the parts of the game's, or its whole as ``observation``, and
    ``turn``, which is 1 for the agent whose turn it is and 0 for the others.

    Attributes:
        game: The environment of PettingZoo's AEC form.
    """

    def __init__(self, game: AECEnv) -> None:
        self.game = game
        self.possible_agents: list[Any] = list(game.possible_agents)
        self.agents: list[Any] = []
        self.metadata = dict(game.metadata)
        self.render_mode = getattr(game, "render_mode", None)
        self._sees = {agent: self._space_of(agent) for agent in self.possible_agents}

    @property
    def movers(self) -> list[Any]:
        """The agent whose turn it is, in a list; none after the game."""
        return [self.game.agent_selection] if self.agents else []

    def observation_space(self, agent: Any) -> spaces.Space[Any]:
        """Return what an agent sees."""
        return self._sees[agent]

    def action_space(self, agent: Any) -> spaces.Space[Any]:
        """Return what an agent can do."""
        found: spaces.Space[Any] = self.game.action_space(agent)
        return found

    def action_masks(self, agent: Any) -> np.ndarray:
        """Return which actions an agent may choose; all, if it waits or the game does not say."""
        seen = self.game.observe(agent)
        mask = np.asarray(seen.get(MASK, 0) if isinstance(seen, Mapping) else 0, bool)
        if agent == self.game.agent_selection and mask.any():
            return mask
        space = self.action_space(agent)
        assert isinstance(space, spaces.Discrete)
        return np.ones(int(space.n), bool)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, dict[str, Any]], dict[Any, dict[str, Any]]]:
        """Begin a game."""
        self.game.reset(seed=seed, options=options)
        self.agents = list(self.game.agents)
        return self._observed(), self._infos()

    def step(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Let the agent whose turn it is act.

        Returns:
            Observations, rewards, terminations, truncations and infos of those who were there.
        """
        game, agents = self.game, self.agents
        game.step(actions[game.agent_selection])
        rewards = {agent: float(game.rewards.get(agent, 0.0)) for agent in agents}
        over, cut = (
            {agent: bool(flags.get(agent, True)) for agent in agents}
            for flags in (game.terminations, game.truncations)
        )
        observations, infos = self._observed(), self._infos()
        while game.agents and (over.get(game.agent_selection) or cut.get(game.agent_selection)):
            game.step(None)  # PettingZoo's way to take out who is done.
        self.agents = [agent for agent in agents if not (over[agent] or cut[agent])]
        return observations, rewards, over, cut, infos

    def render(self) -> Any:
        """Return an image of the game."""
        return self.game.render()

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _space_of(self, agent: Any) -> spaces.Dict:
        space = self.game.observation_space(agent)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        return spaces.Dict({**parts, TURN: spaces.Box(0.0, 1.0, (1,))})

    def _observed(self) -> dict[Any, dict[str, Any]]:
        return {agent: self._observed_by(agent) for agent in self.agents}

    def _observed_by(self, agent: Any) -> dict[str, Any]:
        seen = self.game.observe(agent)
        parts = dict(seen) if isinstance(seen, Mapping) else {"observation": seen}
        return {**parts, TURN: np.full(1, agent == self.game.agent_selection, np.float32)}

    def _infos(self) -> dict[Any, dict[str, Any]]:
        return {agent: dict(self.game.infos.get(agent, {})) for agent in self.agents}

"""A game of two sides for self-play, of teams if asked; or one that is none."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SEES = spaces.Box(-10, 10, (3,), np.float32)


class Duel(ParallelEnv):
    """Two sides bid at once for `rounds` rounds; the higher bid wins, but its square is paid.

    `size` agents a side; `together` gives both what the better one earns.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "duel"}  # noqa: RUF012

    def __init__(self, rounds=3, size=1, together=False, continuous=False, names=("red", "blue"),
                 render_mode=None):  # fmt: skip
        plain = [[name] if size == 1 else [f"{name}_{k}" for k in range(size)] for name in names]
        self.possible_agents = [agent for side in plain for agent in side]
        self.sides = plain
        self.rounds, self.together, self.render_mode = rounds, together, render_mode
        self.acts = spaces.Box(0, 1, (1,), np.float32) if continuous else spaces.Discrete(4)

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return self.acts

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.agents, self.left = list(self.possible_agents), self.rounds
        self.bids = [0.0] * len(self.sides)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.left -= 1
        self.bids = [float(sum(np.ravel(actions[a])[0] for a in side)) for side in self.sides]
        value = float(self.random.integers(2, 5))
        edge = [value * np.sign(bid - np.mean(self.bids)) - 0.1 * bid**2 for bid in self.bids]
        edge = [max(edge)] * len(edge) if self.together else edge
        rewards = {agent: edge[k] for k, side in enumerate(self.sides) for agent in side}
        over = dict.fromkeys(self.agents, self.left == 0)
        seen, there = self._seen(), self.agents
        self.agents = [] if self.left == 0 else self.agents
        return seen, rewards, over, dict.fromkeys(there, False), {agent: {} for agent in there}

    def render(self):
        return np.full((8, 8, 3), self.left, np.uint8)

    def _seen(self):
        return {
            agent: np.array([self.left, self.bids[k], self.bids[1 - k]], np.float32)
            for k, side in enumerate(self.sides)
            for agent in side
        }

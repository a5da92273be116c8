"""A world of PettingZoo whose agents differ: hunters choose a direction, prey flees in a plane."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SPACES = {
    "hunter": (spaces.Box(-100, 100, (3,), np.float32), spaces.Discrete(3)),
    "prey": (spaces.Box(-100, 100, (2,), np.float32), spaces.Box(-2, 1, (2,), np.float32)),
}


class Chase(ParallelEnv):
    """Two hunters earn by being near the prey, which earns by being far; one hunter may leave.

    Attributes:
        taken: The actions of the last step, by agent.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "chase"}  # noqa: RUF012

    def __init__(self, length=6, leaves=100, render_mode=None):
        self.possible_agents = ["hunter_0", "prey", "hunter_1"]
        self.length, self.leaves, self.render_mode = length, leaves, render_mode

    def observation_space(self, agent):
        return SPACES[agent.partition("_")[0]][0]

    def action_space(self, agent):
        return SPACES[agent.partition("_")[0]][1]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        random, self.steps = np.random.default_rng(seed), 0
        self.place = {agent: random.normal(size=2) for agent in self.agents}
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps, self.taken, there = self.steps + 1, actions, self.agents
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
            move = action if agent == "prey" else [action - 1, 0]
            self.place[agent] = self.place[agent] + move
        gaps = {a: float(np.abs(self.place[a] - self.place["prey"]).sum()) for a in there}
        rewards = {agent: -gap for agent, gap in gaps.items()}
        rewards["prey"] = sum(gaps.values())
        gone = {agent: agent == "hunter_1" and self.steps >= self.leaves for agent in there}
        late = dict.fromkeys(there, self.steps >= self.length)
        seen = self._seen()
        self.agents = [agent for agent in there if not (gone[agent] or late[agent])]
        return seen, rewards, gone, late, {agent: {} for agent in there}

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)

    def _seen(self):
        return {
            agent: np.array([*self.place[agent], *([] if agent == "prey" else [1])], np.float32)
            for agent in self.agents
        }

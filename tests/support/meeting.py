"""Worlds of PettingZoo: walkers on a line, of whom some leave, come later, or differ."""

import random

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SEES = spaces.Box(-100, 100, (3,), np.float32)


class Meeting(ParallelEnv):
    """Three walkers earn by being near each other; the first leaves after `leaves` steps.

    `late` names one who comes in the second step; `length` ends the world.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "meeting"}  # noqa: RUF012

    def __init__(self, leaves=4, length=7, late=None, render_mode=None, discrete=False):
        self.possible_agents = ["a", "b", "c"]
        self.leaves, self.length, self.late = leaves, length, late
        self.render_mode = render_mode
        self.acts = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (1,), np.float32)

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return self.acts

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.agents = [agent for agent in self.possible_agents if agent != self.late]
        self.place = dict(zip(self.possible_agents, self.random.normal(size=3), strict=True))
        self.steps = 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.steps += 1
        for agent, action in actions.items():
            self.place[agent] += float(np.ravel(action)[0]) + self.noise()
        there = list(self.agents)
        centre = np.mean([self.place[agent] for agent in there])
        rewards = {agent: -abs(self.place[agent] - centre) for agent in there}
        gone = {agent: agent == "a" and self.steps >= self.leaves for agent in there}
        late = {agent: self.steps >= self.length for agent in there}
        self.agents = [agent for agent in there if not (gone[agent] or late[agent])]
        if self.steps == 2 and self.late is not None:
            self.agents.append(self.late)
            there.append(self.late)
            rewards[self.late], gone[self.late], late[self.late] = 0.0, False, False
        infos = {agent: {"is_success": True} if late[agent] else {} for agent in there}
        return self._seen(there), rewards, gone, late, infos

    def noise(self):
        return self.random.normal() / 10

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)

    def _seen(self, agents):
        return {agent: np.array([self.place[agent], self.steps, 1], np.float32) for agent in agents}


class Forgetful(Meeting):
    """A meeting that a seed does not decide."""

    def noise(self):
        return random.SystemRandom().random()


class Different(Meeting):
    """A meeting whose last walker has other actions."""

    def action_space(self, agent):
        return spaces.Box(-1, 1, (2,), np.float32) if agent == "c" else self.acts


class Choosing(Meeting):
    """A meeting whose walkers see one of several things."""

    def observation_space(self, agent):
        return spaces.Discrete(3)

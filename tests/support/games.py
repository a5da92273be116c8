"""Games of PettingZoo's AEC form: one in turns, and one that is parallel inside."""

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import parallel_to_aec
from pettingzoo.utils.agent_selector import AgentSelector
from support.meeting import Meeting

SEES = spaces.Box(0, 100, (2,), np.float32)


class Countdown(AECEnv):
    """Players take 1 or 2 off a heap in turns; who takes the last earns 1, the other -1.

    `masked` adds which moves there are, and `parallel` claims that it can be converted.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "countdown"}  # noqa: RUF012

    def __init__(self, heap=5, masked=False, parallel=False, render_mode=None):
        super().__init__()
        self.possible_agents = ["left", "right"]
        self.heap, self.masked, self.render_mode = heap, masked, render_mode
        self.metadata = {**type(self).metadata, "is_parallelizable": parallel}

    def observation_space(self, agent):
        if not self.masked:
            return SEES
        return spaces.Dict({"observation": SEES, "action_mask": spaces.Box(0, 1, (2,), np.int8)})

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.left = self.heap + int(np.random.default_rng(seed).integers(2))
        self.agents = list(self.possible_agents)
        self.rewards, self._cumulative_rewards = ({a: 0.0 for a in self.agents} for _ in range(2))
        self.terminations, self.truncations = ({a: False for a in self.agents} for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}
        self.order = AgentSelector(self.agents)
        self.agent_selection = self.order.reset()

    def observe(self, agent):
        seen = np.array([self.left, self.possible_agents.index(agent)], np.float32)
        if not self.masked:
            return seen
        return {"observation": seen, "action_mask": np.array([1, self.left > 1], np.int8)}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self.left = max(self.left - 1 - int(action), 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self.left == 0:
            self.rewards = {a: 1.0 if a == agent else -1.0 for a in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.order.next()

    def render(self):
        return np.full((8, 8, 3), self.left, np.uint8)

    def close(self):
        pass


def taking_turns(**kwargs):
    """Return a meeting whose agents are asked one after the other."""
    return parallel_to_aec(Meeting(**kwargs))

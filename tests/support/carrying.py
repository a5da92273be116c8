"""A team of PettingZoo that carries a load: agents differ in strength, and all earn the same."""

import random

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import ParallelEnv

STRENGTH = {"weak": 1.0, "strong": 3.0}


class Carrying(ParallelEnv):
    """Two agents push a load along a line: both earn where it is, less a little for each push.

    `starts` is the lowest number of a Discrete action; None: pushes are a Box. The weak one leaves
    after `leaves` steps.
    """

    metadata = {"name": "carrying"}  # noqa: RUF012

    def __init__(self, length=5, leaves=100, starts=None, low=-1.0, render_mode=None):
        self.possible_agents = list(STRENGTH)
        self.length, self.leaves, self.starts = length, leaves, starts
        self.render_mode = render_mode
        self.acts = spaces.Box(low, 2.0, (1,), np.float32)
        if starts is not None:
            self.acts = spaces.Discrete(3, start=starts)

    def observation_space(self, agent):
        return spaces.Box(-1000, 1000, (2,), np.float32)

    def action_space(self, agent):
        return self.acts

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.random = np.random.default_rng(seed)
        self.place, self.steps = float(self.random.normal()), 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        pushes = {a: float(np.ravel(x)[0]) for a, x in actions.items()}
        self.place += sum(STRENGTH[agent] * push for agent, push in pushes.items()) + self.noise()
        self.steps += 1
        there = list(self.agents)
        rewards = {agent: self.place - 0.5 * abs(pushes[agent]) for agent in there}
        gone = {agent: agent == "weak" and self.steps >= self.leaves for agent in there}
        late = dict.fromkeys(there, self.steps >= self.length)
        self.agents = [agent for agent in there if not (gone[agent] or late[agent])]
        return self._seen(there), rewards, gone, late, {agent: {} for agent in there}

    def noise(self):
        return float(self.random.normal()) / 10

    def _seen(self, agents):
        return {agent: np.array([self.place, self.steps], np.float32) for agent in agents}


class Attached(Carrying):
    """One that cannot be copied, as its simulation is elsewhere."""

    def __deepcopy__(self, memo):
        raise TypeError("it cannot be copied")


class Shared(Carrying):
    """One whose copies share its load: to copy it would move it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.__dict__["load"] = Load()

    place = property(lambda self: self.load.place, lambda self, x: setattr(self.load, "place", x))


class Load:
    def __deepcopy__(self, memo):
        return self


class Stored(Attached):
    """One that gives its state."""

    def state_dict(self):
        self.n_given = getattr(self, "n_given", 0) + 1
        random_state = self.random.bit_generator.state
        return {"place": self.place, "steps": self.steps, "agents": self.agents, "r": random_state}

    def load_state_dict(self, state):
        self.place, self.steps, self.agents = state["place"], state["steps"], list(state["agents"])
        self.random = np.random.default_rng()
        self.random.bit_generator.state = state["r"]


class Global(Carrying):
    """One whose reset seeds the global generator of NumPy, and draws from it."""

    def reset(self, seed=None, options=None):
        np.random.seed(seed)
        seen = super().reset(seed, options)
        self.place = float(np.random.normal())
        return self._seen(seen[0]), seen[1]


class Unrepeatable(Carrying):
    """One that a seed does not decide."""

    def noise(self):
        return random.SystemRandom().random()


class Pickled(Carrying, EzPickle):
    """One that is copied by making it anew, as most worlds of PettingZoo."""

    def __init__(self, **kwargs):
        EzPickle.__init__(self, **kwargs)
        Carrying.__init__(self, **kwargs)

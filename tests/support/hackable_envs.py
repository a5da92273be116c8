"""Environments with a planted flaw, for the diagnosis; importing this module registers them."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class PaysForIdling(gym.Env):
    """Drive to a goal; a flaw of the reward pays more for staying than for the way."""

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0.0, 0
        return self._observe(), {}

    def step(self, action):
        push = float(action[0])
        self.place += 0.2 * push
        self.steps += 1
        terms = {"progress": 0.2 * push, "idle": 1.0 * (abs(push) < 0.1)}
        is_there, is_late = self.place >= 1.0, self.steps >= 20
        info = {"reward_terms": terms}
        if is_there or is_late:
            info["is_success"] = is_there
        return self._observe(), sum(terms.values()), is_there, is_late and not is_there, info

    def _observe(self):
        return np.array([1.0 - self.place, self.steps / 20], np.float32)


class HasAUselessEntry(gym.Env):
    """Name a target; the second entry is noise that nothing depends on."""

    observation_names = ("target", "noise", "offset")

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        wanted = 0.6 * self.seen[0] - 0.4 * self.seen[2]
        reward = -((float(action[0]) - wanted) ** 2)
        self.steps += 1
        return self._observe(), reward, False, self.steps >= 10, {}

    def _observe(self):
        self.seen = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.seen


for _env in (PaysForIdling, HasAUselessEntry):
    if f"tests/{_env.__name__}-v0" not in gym.registry:
        gym.register(f"tests/{_env.__name__}-v0", entry_point=_env)

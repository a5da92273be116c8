"""Environments of users that a seed and actions do not decide; importing this registers them."""

import random
import time

import gymnasium as gym
import numpy as np
from support.tiny_envs import LENGTH, TinyReach


class Dice(TinyReach):
    """Rolls the dice of Python, NumPy and torch in the last steps of an episode."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.steps > LENGTH - 3:
            import torch

            reward -= random.random() + np.random.random() + float(torch.rand(()))
        return observation, reward, *rest


class Widening(TinyReach):
    """Its goals lie further apart after some episodes, or after some wins."""

    def __init__(self, after_episodes=None, after_wins=None):
        super().__init__()
        self.after_episodes, self.after_wins = after_episodes, after_wins
        self.episodes = self.wins = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.episodes += 1
        many = self.after_episodes is not None and self.episodes > self.after_episodes
        if many or (self.after_wins is not None and self.wins >= self.after_wins):
            self.goal *= 3.0
        return self._observe(), {}

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.wins += terminated or (truncated and abs(self.point - self.goal) < 1.0)
        return observation, reward, terminated, truncated, info


class Secretive(Widening):
    """The same, where no attribute shows it."""

    def __init__(self, after_episodes=None, after_wins=None):
        self.counts = {}
        super().__init__(after_episodes, after_wins)

    @property
    def episodes(self):
        return self.counts["episodes"]

    @episodes.setter
    def episodes(self, value):
        self.counts["episodes"] = value

    @property
    def wins(self):
        return self.counts["wins"]

    @wins.setter
    def wins(self, value):
        self.counts["wins"] = value


class Remembering(Widening):
    """The same, with an account of what it remembers between episodes."""

    def state_dict(self):
        return {"episodes": self.episodes, "wins": self.wins}

    def load_state_dict(self, state):
        self.episodes, self.wins = state["episodes"], state["wins"]


class LateClock(TinyReach):
    """Reads the clock in the last step of an episode."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.steps == LENGTH:
            reward -= time.perf_counter() % 1.0
        return observation, reward, *rest


class Staged(TinyReach):
    """A task with stages, which a callback sets."""

    n = 1

    def set_n(self, n):
        self.n = n

    def get_stage(self):
        return self.n

    def advance(self, by=1):
        self.n += by

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.goal *= self.n
        return self._observe(), {}

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * self.n, *rest


for _env in (Dice, Widening, Secretive, Remembering, LateClock, Staged):
    _id = f"tests/{_env.__name__}-v0"
    if _id not in gym.registry:
        gym.register(_id, entry_point=_env)

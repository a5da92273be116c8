"""Environments with the usual mistakes of users; importing this module registers them."""

import threading
import time
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Sound(gym.Env):
    """A correct one with episodes of ten steps, which the others break."""

    metadata: ClassVar = {"render_modes": []}
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self.observe(), {}

    def step(self, action):
        self.taken += 1
        return self.observe(), self.reward(), False, self.taken >= 10, {}

    def observe(self):
        return np.full(3, 0.05 * self.taken, np.float32)

    def reward(self):
        return 1.0


class OldReset(Sound):
    def reset(self, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Sound):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, self.taken >= 10, {}


class NanObservation(Sound):
    def observe(self):
        return super().observe() / np.float32(self.taken != 7)


class NanReward(Sound):
    def reward(self):
        return float("nan") if self.taken == 7 else 1.0


class WholeNumbers(Sound):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)


class OtherType(Sound):
    def observe(self):
        return super().observe().astype(np.float64)


class OutOfRange(Sound):
    def observe(self):
        return 100 * super().observe()


class Clocked(Sound):
    def reward(self):
        return time.perf_counter() % 1.0


class Endless(Sound):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        self.taken %= 10
        return observation, reward, False, False, {}


class Breaking(Sound):
    def reward(self):
        return np.linalg.solve(np.zeros((2, 2)), np.ones(2))[0] if self.taken == 5 else 1.0


class Lacking(Sound):
    def __init__(self):
        import cv2_that_is_not_there  # noqa: F401


class Unbounded(Sound):
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Mission(spaces.Space):
    """A space of texts that nothing can flatten."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "go to the goal"

    def contains(self, x):
        return isinstance(x, str)


class Worded(Sound):
    """Observations like those of MiniGrid."""

    action_space = spaces.Discrete(7)
    observation_space = spaces.Dict(
        {
            "direction": spaces.Discrete(4),
            "image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
            "mission": Mission(),
        }
    )

    def observe(self):
        image = np.full((7, 7, 3), self.taken, np.uint8)
        return {"direction": self.taken % 4, "image": image, "mission": "go to the goal"}


class SmallImage(Sound):
    action_space = spaces.Discrete(7)
    observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)

    def observe(self):
        return np.full((7, 7, 3), self.taken, np.uint8)


class Sampled(Sound):
    """Observations are drawn from their space; an action outside of its own breaks it."""

    def observe(self):
        return self.observation_space.sample()

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        return super().step(action)


class StartsBelowZero(Sampled):
    action_space = spaces.Discrete(3, start=-1)


class SeveralStart(Sampled):
    action_space = spaces.MultiDiscrete([[3, 2], [2, 2]], start=[[-1, 5], [0, 1]])


class SeenFromTwo(Sampled):
    parts: ClassVar = {"a": spaces.Discrete(4, start=2), "b": spaces.Box(-1, 1, (2,), np.float32)}
    observation_space = spaces.Dict(parts)


class TwoAxes(Sampled):
    observation_space = spaces.MultiDiscrete([[3, 2], [2, 2]])


class OneNumber(Sampled):
    observation_space = spaces.Box(-1, 1, (), np.float32)


class NothingToDecide(Sampled):
    action_space = spaces.Box(-1, 1, (0,), np.float32)


class Whole(Sampled):
    action_space = spaces.Box(-5, 5, (2,), np.int64)

    def step(self, action):
        return Sound.step(self, action)


class NoWidth(Sampled):
    low, high = np.array([-1, 0.5], np.float32), np.array([1, 0.5], np.float32)
    action_space = spaces.Box(low, high, dtype=np.float32)


class FloatImage(Sampled):
    observation_space = spaces.Box(0, 1, (3, 40, 40), np.float32)


class GreyImage(Sampled):
    observation_space = spaces.Box(0, 255, (40, 40), np.uint8)


class StackedImages(Sampled):
    observation_space = spaces.Box(0, 255, (4, 40, 40, 3), np.uint8)


class Asserting(Sound):
    def __init__(self, width=3):
        assert width > 5


class Locked(Sound):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "lock": threading.Lock()}


class Chatty(Sound):
    """Sends what cannot be pickled, from the step `first` of its life."""

    def __init__(self, first=0):
        self.first, self.steps = first, 0

    def step(self, action):
        *rest, info = super().step(action)
        self.steps += 1
        return *rest, {**info, **({"call": lambda: 1} if self.steps > self.first else {})}


class SeveralAgents:
    """What PettingZoo's parallel environments look like."""

    possible_agents: ClassVar = ["left", "right"]

    def reset(self, seed=None, options=None):
        return {name: 0 for name in self.possible_agents}, {}


for _class in (*Sound.__subclasses__(), *Sampled.__subclasses__(), Sound, SeveralAgents):
    gym.register(f"broken/{_class.__name__}-v0", entry_point=_class)

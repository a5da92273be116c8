"""Environments of a user who makes mistakes; importing this module registers them."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class OwnEnv(gym.Env):
    """A correct one, which the others break."""

    metadata: ClassVar = {"render_modes": []}
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, False, {}


class OldReset(OwnEnv):
    def reset(self):
        return np.zeros(3, np.float32)


class OldReturn(OwnEnv):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32)


class OldStep(OwnEnv):
    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, {}


class OldSpace:
    """What another package calls a space."""


class OldSpaces(OwnEnv):
    action_space = OldSpace()


class NoSpaces(OwnEnv):
    observation_space = None


class OtherShape(OwnEnv):
    def reset(self, *, seed=None, options=None):
        return np.zeros(5, np.float32), {}


class OtherKeys(OwnEnv):
    observation_space = spaces.Dict({"a": spaces.Discrete(2)})

    def reset(self, *, seed=None, options=None):
        return {"b": 0}, {}


class NoReward(OwnEnv):
    def step(self, action):
        return np.zeros(3, np.float32), None, True, False, {}


class BrokenInit(OwnEnv):
    def __init__(self):
        raise RuntimeError("no licence")


class LeavingReset(OwnEnv):
    def reset(self, *, seed=None, options=None):
        raise SystemExit("bye")


class BrokenStep(OwnEnv):
    def step(self, action):
        raise ZeroDivisionError("boom")


class Nothing(OwnEnv):
    observation_space = spaces.Box(-1, 1, (0,), np.float32)


class TwoDice(OwnEnv):
    observation_space = spaces.MultiDiscrete([6, 6])

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.int64), {}

    def step(self, action):
        return np.zeros(2, np.int64), 1.0, True, False, {}


class NotAnEnv:
    """Inherits from nothing."""


for _class in (*OwnEnv.__subclasses__(), OwnEnv, NotAnEnv):
    gym.register(f"own/{_class.__name__}-v0", entry_point=_class)

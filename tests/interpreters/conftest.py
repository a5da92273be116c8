"""Fixtures of environments in other interpreters."""

import sys

import pytest

from rlzoo_plus.config.schema import EnvConfig

# Imports neither gym nor gymnasium before it is known which there is.
WORLDS = '''
import ctypes, os, random, sys, time

import numpy as np

try:
    import gymnasium as gym
    from gymnasium import spaces
except ImportError:
    import gym
    from gym import spaces

print("a line that must not reach the pipe")


class Walk(gym.Env):
    """Draws from the global generators; ends by itself, has infos, and a mistake if asked to."""

    observation_space = spaces.Dict({
        "at": spaces.Box(-10.0, 10.0, (2,), np.float64),
        "way": spaces.MultiDiscrete([2, 3]),
        "seen": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "on": spaces.MultiBinary(3),
    })
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, how="", when=10, stage=0):
        self.how, self.when, self.stage, self.steps = how, when, stage, 0

    def set_stage(self, stage):
        self.stage = stage
        return np.full(2, stage)

    def action_masks(self):
        return (np.ones(2, bool), [1, "two", None])

    def seen(self):
        return {
            "at": self.at,
            "way": np.array([self.taken % 2, self.taken % 3]),
            "seen": np.full((4, 4, 3), self.taken, np.uint8),
            "on": np.array([1, 0, 1], np.int8),
        }

    def reset(self, *, seed=None, options=None):
        self.taken, self.at = 0, np.random.normal(size=2)
        return self.seen(), {"options": options, "thing": object()}

    def step(self, action):
        self.steps += 1
        self.taken += 1
        print("noise", self.steps)
        if self.steps == self.when:
            self.fail()
        self.at = 0.9 * self.at + action[0] + random.random() + self.stage
        info = {"cost": np.float32(self.at.sum()), "pair": (1, np.arange(2)), "thing": object()}
        return self.seen(), np.float32(-self.at.sum()), self.taken >= 23, False, info

    def fail(self):
        if self.how == "raise":
            raise ValueError("the gripper is stuck")
        if self.how == "exit":
            sys.exit(3)
        if self.how == "crash":
            ctypes.string_at(0)
        if self.how == "kill":
            os.kill(os.getpid(), 9)
        if self.how == "hang":
            time.sleep(600)


class Forgetful(gym.Env):
    """Gets harder with each episode."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.zeros(1, np.float32), -float(self.episodes), self.taken >= 30, False, {}


class Counting(Forgetful):
    def state_dict(self):
        return {"episodes": self.episodes}

    def load_state_dict(self, state):
        self.episodes = state["episodes"]


class OldWalk(gym.Env):
    """The interface of gym before 0.26: a done, and a seed in a call of its own."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def seed(self, seed=None):
        self.draw = np.random.RandomState(seed)
        return [seed]

    def reset(self):
        self.taken, self.at = 0, self.draw.normal(size=1)
        return self.at.astype(np.float32)

    def step(self, action):
        self.taken += 1
        self.at = 0.9 * self.at + action + self.draw.normal(size=1)
        is_cut = self.taken == 20
        info = {"TimeLimit.truncated": True} if is_cut else {}
        return self.at.astype(np.float32), 1.0, is_cut or self.at[0] > 9, info


class Odd(gym.Env):
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    class action_space:
        shape = ()
'''


@pytest.fixture
def worlds(tmp_path, monkeypatch):
    """A folder with a user's module of environments, which is the current one."""
    (tmp_path / "their_worlds.py").write_text(WORLDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spec():
    """Return a function that makes the specification of an environment elsewhere."""

    def make(env_id, python=sys.executable, worlds_per_process=1, time_limit=None, **kwargs):
        return EnvConfig(
            id=env_id,
            python=python,
            worlds_per_process=worlds_per_process,
            packages=[],
            kwargs=kwargs,
            wrappers=[],
            frame_stack=1,
            time_limit=time_limit,
            warmup_resets=0,
            max_return=None,
            solved_return=None,
        )

    return make

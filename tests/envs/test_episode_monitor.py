"""`EpisodeMonitor` records episodes as Stable-Baselines3's `Monitor` does."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from support.training import assert_same_tree

from rlzoo_plus.envs.monitor import EpisodeMonitor

SPACES = {
    "float32": spaces.Box(-np.inf, np.inf, (5,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "integers": spaces.Box(-100, 100, (4,), np.int64),
    "number": spaces.Box(-np.inf, np.inf, (), np.float32),
    "dictionary": spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (3,), np.float32), "b": spaces.Discrete(4)}
    ),
}


class Scripted(gym.Env):
    """Random observations of any size and infos of any kind; uses its arrays again."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space, self.info = space, {"shared": [0]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {"first": True}

    def step(self, action):
        self.info["shared"][0] += 1
        info = {**self.info, "score": {"x": float(action)}, "where": np.arange(3.0), "n": 1}
        reward = self.np_random.normal() * 10.0 ** self.np_random.integers(-20, 20)
        ends, cut = self.np_random.random(2) < 0.1
        return self._draw(), reward, bool(ends), bool(cut), info

    def _draw(self):
        def draw(space):
            if isinstance(space, spaces.Discrete):
                return int(self.np_random.integers(space.n))
            size = 10.0 ** self.np_random.integers(-30, 15, size=space.shape)
            values = self.np_random.normal(size=space.shape) * size
            if space.dtype.kind == "i":
                return np.clip(values, space.low, space.high).astype(space.dtype)
            return np.asarray(values, space.dtype)

        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: draw(part) for key, part in space.spaces.items()}
        return draw(space)


def play(monitor, space, steps=60):
    """Return all that environments of a kind show."""
    venv = DummyVecEnv([lambda: monitor(Scripted(space)) for _ in range(3)])
    venv.seed(1)
    seen = [_shown(venv.reset())]
    for number in range(steps):
        observations, rewards, dones, infos = venv.step(np.arange(3) + number % 2)
        for info in infos:
            info.get("episode", {}).pop("t", None)
        seen.append([_shown(observations), rewards, dones, infos, venv.reset_infos])
    return seen


def _shown(observations):
    return dict(observations) if isinstance(observations, dict) else observations


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_episodes_are_recorded_as_by_a_monitor(space):
    assert_same_tree(play(EpisodeMonitor, space), play(Monitor, space))

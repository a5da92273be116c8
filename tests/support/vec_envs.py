"""Vectorised environments as users write them, good ones and bad ones."""

import time

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv


class NoState(VecEnv):
    """Points walk on a line, whose episodes end after some steps; it does not give its state."""

    def __init__(self, env, n_envs, seed, render_mode=None):
        self.env, self.first_seed = env, seed
        self.length = int(env.kwargs.get("length", 6))
        self.random = np.random.default_rng(seed)
        self.points, self.steps = np.zeros(n_envs), np.zeros(n_envs, np.int64)
        box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        super().__init__(n_envs, box, spaces.Box(-1, 1, (1,), np.float32))

    def seed(self, seed=None):
        self.random = np.random.default_rng(seed)
        return [seed] * self.num_envs

    def reset(self):
        self._begin(np.ones(self.num_envs, bool))
        return self._observe()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        self.points += 0.3 * self.actions[:, 0] + 0.01 * self.random.normal(size=self.num_envs)
        self.steps += 1
        rewards, last = -np.abs(self.points).astype(np.float32), self._observe()
        # Not all at the same time.
        dones = self.steps >= self.length + np.arange(self.num_envs) % 2
        infos = [{"terminal_observation": last[n]} if done else {} for n, done in enumerate(dones)]
        self._begin(dones)
        return self._observe(), rewards, dones, infos

    def harder(self):
        self.length += 1

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name, value, indices=None):
        setattr(self, attr_name, value)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        result = getattr(self, method_name)(*args, **kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * len(list(self._get_indices(indices)))

    def _begin(self, which):
        self.points[which] = self.random.normal(size=int(which.sum()))
        self.steps[which] = 0

    def _observe(self):
        return np.stack([10 * self.points, self.steps], axis=1).astype(np.float32)


class Walkers(NoState):
    """The same, with its state."""

    def state_dict(self):
        random = self.random.bit_generator.state
        return {"random": random, "points": self.points, "steps": self.steps}

    def load_state_dict(self, state):
        self.random.bit_generator.state = state["random"]
        self.points[:], self.steps[:] = state["points"], state["steps"]


class Forgetful(Walkers):
    """Gives a state in which something is missing."""

    def state_dict(self):
        return {**super().state_dict(), "steps": np.zeros_like(self.steps)}


class Refusing(Walkers):
    """Does not take its own state."""

    def load_state_dict(self, state):
        raise KeyError("version")


class SeesClock(Walkers):
    """Gives an object instead of data."""

    def state_dict(self):
        return {"clock": time.gmtime}


class TooFew(NoState):
    """Makes one, however many it is asked for."""

    def __init__(self, env, n_envs, seed, render_mode=None):
        super().__init__(env, 1, seed)


class Refuses(NoState):
    """Wants an argument that nobody gives."""

    def __init__(self, env, n_envs, seed, render_mode=None, *, simulator):
        super().__init__(env, n_envs, seed)


class OtherShape(NoState):
    """Returns other observations than its space says."""

    def _observe(self):
        return super()._observe()[:, :1]


class Breaks(NoState):
    """Raises in its first step."""

    def step_wait(self):
        raise ZeroDivisionError("1/0")

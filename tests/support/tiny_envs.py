"""Small, fast environments for the tests; importing this module registers them."""

import os
import signal
import sys
import time
from collections import OrderedDict
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = 8
CREATED: list[dict] = []  # the arguments of every TinyReach of this process, in order


class TinyReach(gym.Env):
    """Move a point to a goal drawn at reset; if restless, every unseeded reset is unpredictable."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, scale=1.0, discrete=False, restless=False):
        CREATED.append({"scale": scale, "discrete": discrete})
        self.scale = scale
        self.restless = restless
        self.generator = None
        self.seeds = []
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        if seed is not None or self.restless or self.generator is None:
            self.generator = np.random.default_rng(seed)
        self.point, self.goal = self.generator.normal(size=2)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        move = float(action) - 1.0 if np.ndim(action) == 0 else float(action[0])
        self.point += 0.3 * move
        self.steps += 1
        distance = abs(self.point - self.goal)
        done = self.steps >= LENGTH
        info = {"is_success": bool(distance < 0.5)} if done else {}
        return self._observe(), -self.scale * distance, False, done, info

    def _observe(self):
        values = [10.0 * self.point, 5.0 + self.goal, self.steps]
        return np.array(values, dtype=np.float32)


class TinyMasked(TinyReach):
    """Only one action is allowed in each step; any other raises."""

    def __init__(self):
        super().__init__(discrete=True)

    def action_masks(self):
        masks = np.zeros(3, dtype=bool)
        masks[self.steps % 3] = True
        return masks

    def step(self, action):
        if not self.action_masks()[int(action)]:
            raise AssertionError(f"action {action} is masked in step {self.steps}")
        return super().step(np.int64(action))


class TinyMemory(TinyReach):
    """Shows its goal in the first observation only: the return depends on a recurrent state."""

    def _observe(self):
        observation = super()._observe()
        if self.steps:
            observation[1] = 0.0
        return observation


class TinyImage(TinyReach):
    """Pictures with the channels last."""

    def __init__(self, size=36, discrete=False):
        super().__init__(discrete=discrete)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)

    def _observe(self):
        value = int(np.clip(128 + 20 * self.point, 0, 255))
        return np.full(self.observation_space.shape, value, np.uint8)


class TinyDict(TinyReach):
    """A dictionary of numbers, a picture and a choice, whose keys are not in alphabetic order."""

    def __init__(self, picture=True):
        super().__init__()
        parts = [
            ("zeta", spaces.Box(-np.inf, np.inf, (2,), np.float32)),
            ("kind", spaces.Discrete(3)),
            ("alpha", spaces.Box(-np.inf, np.inf, (1,), np.float32)),
        ]
        if picture:
            parts.append(("picture", spaces.Box(0, 255, (36, 36, 3), np.uint8)))
        self.observation_space = spaces.Dict(OrderedDict(parts))

    def _observe(self):
        point, goal, steps = super()._observe()
        values = {
            "zeta": np.array([point, goal], np.float32),
            "kind": np.int64(int(steps) % 3),
            "alpha": np.array([steps], np.float32),
            "picture": np.full((36, 36, 3), int(steps), np.uint8),
        }
        return {key: values[key] for key in self.observation_space.spaces}


class TinyRgbd(TinyReach):
    """A colour image with its channels last and a depth image with its channel first."""

    def __init__(self):
        super().__init__()
        images = {"rgb": (36, 40, 3), "depth": (1, 36, 40)}
        parts = {key: spaces.Box(0, 255, shape, np.uint8) for key, shape in images.items()}
        self.observation_space = spaces.Dict(parts)

    def _observe(self):
        rgb = np.arange(36 * 40 * 3, dtype=np.uint8).reshape(36, 40, 3)
        return {"rgb": rgb, "depth": np.full((1, 36, 40), self.steps, np.uint8)}


class TinyReuser(TinyReach):
    """Returns the same arrays and the same info at each step; the info has its own `episode`."""

    def __init__(self, dictionary=False):
        super().__init__()
        self.array, self.info = np.zeros(3, np.float32), {}
        if dictionary:
            self.observation_space = spaces.Dict({"inner": self.observation_space})
        self.shown = {"inner": self.array} if dictionary else self.array

    def _observe(self):
        self.array[:] = super()._observe()
        return self.shown

    def step(self, action):
        *rest, _ = super().step(action)
        self.info |= {"episode": {"number": self.steps}, "seen": self.array}
        return *rest, self.info


class TinyCrowd(TinyReach):
    """The goal is one of four obstacles in a table, of which a mask shows some to be there."""

    def __init__(self):
        super().__init__()
        parts = {
            "robot": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            "obstacles": spaces.Box(-np.inf, np.inf, (4, 2), np.float32),
            "there": spaces.Box(0, 1, (4,), np.float32),
        }
        self.observation_space = spaces.Dict(parts)

    def _observe(self):
        there = np.arange(4) <= self.steps % 4
        obstacles = np.stack([self.goal + np.arange(4), np.arange(4) * self.steps], axis=1)
        return {
            "robot": np.array([self.point], np.float32),
            "obstacles": obstacles.astype(np.float32),
            "there": there.astype(np.float32),
        }


class TinyGoal(TinyReach):
    """The point is to be brought to a goal that can be changed afterwards, for hindsight replay."""

    def __init__(self):
        super().__init__()
        part = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict(
            OrderedDict(observation=part, achieved_goal=part, desired_goal=part)
        )

    def step(self, action):
        observation, _, *rest = super().step(action)
        reached, wanted = observation["achieved_goal"], observation["desired_goal"]
        return observation, float(self.compute_reward(reached, wanted, {})), *rest

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.abs(achieved_goal - desired_goal)[..., 0] > 0.5).astype(np.float32)

    def _observe(self):
        values = {"observation": self.steps, "achieved_goal": self.point, "desired_goal": self.goal}
        return {key: np.array([value], np.float32) for key, value in values.items()}


class TinyEndless(TinyReach):
    """Its episodes never end; the point comes back at the border."""

    def step(self, action):
        self.point = (self.point + 2.0) % 4.0 - 2.0
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class TinyClock(TinyReach):
    """Shows the time of day, which no seed brings back."""

    def _observe(self):
        observation = super()._observe()
        observation[2] = time.perf_counter() % 1.0
        return observation


class TinyGlobal(TinyReach):
    """Adds noise from NumPy's global generator, which a reset does not seed."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + np.random.normal(), *rest


class TinyHidden(TinyReach):
    """Remembers how many episodes it has played, and shows it."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed, options=options)

    def _observe(self):
        observation = super()._observe()
        observation[2] += 100 * self.episodes
        return observation


class TinyLate(TinyReach):
    """What it remembers of earlier episodes shows only after thirty steps of all together."""

    def __init__(self):
        super().__init__()
        self.taken = 0

    def step(self, action):
        self.taken += 1
        observation, reward, *rest = super().step(action)
        return observation, reward - (self.taken > 30), *rest


class TinyLevers(TinyReach):
    """Two levers, of which each has one position that is allowed in a step; any other raises."""

    def __init__(self):
        super().__init__()
        self.action_space = spaces.MultiDiscrete([3, 2])

    def action_masks(self):
        masks = np.zeros(5, dtype=bool)
        masks[[self.steps % 3, 3 + self.steps % 2]] = True
        return masks

    def step(self, action):
        if not self.action_masks()[[action[0], 3 + action[1]]].all():
            raise AssertionError(f"action {action} is masked in step {self.steps}")
        return super().step(np.int64(action[0]))


class TinyBroken(TinyReach):
    """Breaks in its 20th step, but not while it is tried out before a training."""

    taken = 0

    def step(self, action):
        # The trial has seeds of its own, next to 20,000.
        self.taken += self.seeds[-1] not in range(20_000, 20_010)
        if self.taken == 20:
            raise RuntimeError("the gearbox broke")
        return super().step(action)


class TinyFatal(TinyReach):
    """Ends its own process in its n-th step, by sys.exit, os._exit or a signal; or is stuck."""

    def __init__(self, how="sys.exit", at_step=20, where="step"):
        super().__init__()
        self.how, self.at_step, self.where, self.taken = how, at_step, where, 0
        if where == "make":
            self._end()

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            self._end()
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.taken += 1
        if self.where == "step" and self.taken == self.at_step:
            self._end()
        return super().step(action)

    def _end(self):
        if self.how == "sys.exit":
            sys.exit(0)
        if self.how == "os._exit":
            os._exit(0)
        if self.how == "stuck":
            time.sleep(3600)
        os.kill(os.getpid(), getattr(signal, self.how))


class Poisoned(gym.Wrapper):
    """Returns a number that is none in its n-th step: as reward, observation or last observation.

    Dictionaries have it in their first part of floats.
    """

    def __init__(self, env, at_step, what="reward", value=float("nan")):
        super().__init__(env)
        self.at_step, self.what, self.value, self.taken = at_step, what, float(value), 0

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.taken += 1
        if self.taken >= self.at_step:
            if self.what == "reward":
                reward = self.value
            elif self.what == "observation" or terminated or truncated:
                parts = observation.values() if isinstance(observation, dict) else [observation]
                floats = next(part for part in parts if part.dtype.kind == "f")
                floats[0] = self.value
        return observation, reward, terminated, truncated, info


class Late(gym.Wrapper):
    """Breaks in its n-th step."""

    def __init__(self, env, at_step):
        super().__init__(env)
        self.at_step, self.taken = at_step, 0

    def step(self, action):
        self.taken += 1
        if self.taken == self.at_step:
            raise RuntimeError("the wrapper broke")
        return super().step(action)


class Doubled(gym.RewardWrapper):
    """Doubles the reward; a wrapper of a user's own."""

    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward


_ENVS = [TinyReach, TinyMasked, TinyMemory, TinyImage, TinyDict, TinyGoal, TinyCrowd, TinyBroken]
_ENVS += [TinyEndless, TinyClock, TinyGlobal, TinyHidden, TinyLate, TinyLevers]
_ENVS += [TinyFatal, TinyRgbd, TinyReuser]
for _env in _ENVS:
    _id = f"tests/{_env.__name__}-v0"
    if _id not in gym.registry:
        gym.register(_id, entry_point=_env)

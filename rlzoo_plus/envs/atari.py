"""Atari games: the usual preprocessing, in a part for all episodes and one for training alone.

`env.wrappers=[atari]` stands for both. Whole games with their own scores are recorded and
evaluated: what ends an episode at a lost life or changes a reward comes outside of the `Monitor`,
and only in training.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.atari_wrappers import (
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
    StickyActionEnv,
    WarpFrame,
)

NAME = "atari"
_FRAMES_PER_SECOND = 60
_FIRE = 1


class AtariPreprocessing(gym.Wrapper):
    """Starts with up to `noop_max` idle frames, skips frames, presses FIRE, shows grey images.

    The steps are those of Stable-Baselines3's `AtariWrapper`; FIRE is also pressed after each lost
    life, without which a game such as Breakout would stand still. `terminal_on_life_loss` and
    `clip_reward` are for `for_training`.
    """

    def __init__(
        self,
        env: gym.Env,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
        action_repeat_probability: float = 0.0,
    ) -> None:
        repeats = np.max(getattr(env.unwrapped, "_frameskip", 1))
        if repeats > 1 and frame_skip > 1:
            raise ValueError(
                f"the game repeats each action {repeats} times already, with frame_skip="
                f"{frame_skip} it would be {repeats * frame_skip} times. Set env.kwargs.frameskip=1"
            )
        if action_repeat_probability > 0.0:
            env = StickyActionEnv(env, action_repeat_probability)
        if noop_max > 0:
            env = NoopResetEnv(env, noop_max=noop_max)
        if frame_skip > 1:
            env = MaxAndSkipEnv(env, skip=frame_skip)
        if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
            env = _FireEachLife(env)
        super().__init__(WarpFrame(env, width=screen_size, height=screen_size))
        self.frames_per_step = int(repeats * frame_skip)
        fps = _FRAMES_PER_SECOND / self.frames_per_step
        self.metadata = {**(env.metadata or {}), "render_fps": fps}


class _FireEachLife(FireResetEnv):
    """Presses FIRE at the start, and after each lost life in the same step."""

    _lives = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        first = super().reset(**kwargs)
        self._lives = _lives_of(self)
        return first

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        before, self._lives = self._lives, _lives_of(self)
        if 0 < self._lives < before and not (result[2] or result[3]):
            observation, more, *rest = self.env.step(_FIRE)
            return observation, float(result[1]) + float(more), *rest  # type: ignore[return-value]
        return result


class _EpisodicLife(gym.Wrapper):
    """Ends an episode at each lost life; the next one is the game's continuation."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._is_over, self._last = True, None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if self._is_over or self._last is None or kwargs.get("seed") is not None:
            return self.env.reset(**kwargs)
        return self._last, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        # Asked each time: a game that was restored has other lives than at its reset.
        before = _lives_of(self)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._is_over, self._last = terminated or truncated, observation
        return observation, reward, terminated or 0 < _lives_of(self) < before, truncated, info


class _SignReward(gym.RewardWrapper):
    """Gives the sign of a reward, as scores of games differ by orders of magnitude."""

    def reward(self, reward: Any) -> float:
        return float(np.sign(float(reward)))


def for_training(env: gym.Env, wrappers: list[Any]) -> gym.Env:
    """Wrap a monitored environment in what `atari` among the `wrappers` means for training."""
    for entry in wrappers:
        named = {entry: None} if isinstance(entry, str) else entry
        if NAME not in named:
            continue
        kwargs = named[NAME] or {}
        if kwargs.get("terminal_on_life_loss", True):
            env = _EpisodicLife(env)
        if kwargs.get("clip_reward", True):
            env = _SignReward(env)
    return env


def _lives_of(env: gym.Env) -> int:
    """Return the lives that are left in a game."""
    return int(env.unwrapped.ale.lives())  # type: ignore[attr-defined]

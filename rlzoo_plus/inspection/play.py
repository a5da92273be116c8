"""Random play: its speed, reward terms, reasons for the end of episodes, and images of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError

SEED = 0
# Enough for a robot to show what random actions do to it.
_STEPS_TO_THE_SECOND_PICTURE = 50


@dataclass
class Spread:
    """Values seen so far.

    Attributes:
        lowest: The lowest.
        highest: The highest.
        total: Their sum.
        count: How many.
    """

    lowest: float = float("inf")
    highest: float = float("-inf")
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Take one more value."""
        self.lowest = min(self.lowest, value)
        self.highest = max(self.highest, value)
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float:
        """Return the mean, NaN of no values."""
        return self.total / self.count if self.count else float("nan")


@dataclass
class RandomPlay:
    """What came of random actions.

    Attributes:
        steps: Steps taken.
        steps_per_s: Their rate, resets included.
        reward: Of a step.
        terms: Weighted terms of a step's reward, by name; empty if the environment reports none.
        returns: Of whole episodes.
        lengths: Steps of whole episodes.
        ends: How often an episode ended for which reason.
        outside: How many observations left their space.
    """

    steps: int = 0
    steps_per_s: float = 0.0
    reward: Spread = field(default_factory=Spread)
    terms: dict[str, Spread] = field(default_factory=dict)
    returns: Spread = field(default_factory=Spread)
    lengths: Spread = field(default_factory=Spread)
    ends: Counter[str] = field(default_factory=Counter)
    outside: int = 0


def play_randomly(env: gym.Env, seconds: float) -> RandomPlay:
    """Act at random for a while, always the same actions; rates are those of this machine.

    Args:
        env: Left in the middle of an episode.
        seconds: For how long; at least one step is taken.
    """
    play = RandomPlay()
    env.action_space.seed(SEED)
    env.reset(seed=SEED)
    began = time.perf_counter()
    episode_return, length = 0.0, 0
    while play.steps == 0 or time.perf_counter() - began < seconds:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        play.steps += 1
        play.outside += not env.observation_space.contains(observation)
        play.reward.add(float(reward))
        for name, value in _terms(info).items():
            play.terms.setdefault(name, Spread()).add(value)
        episode_return, length = episode_return + float(reward), length + 1
        if terminated or truncated:
            play.returns.add(episode_return)
            play.lengths.add(length)
            play.ends[_end(info, terminated=bool(terminated))] += 1
            episode_return, length = 0.0, 0
            env.reset()
    play.steps_per_s = play.steps / (time.perf_counter() - began)
    return play


def start_and_later(env: gym.Env) -> list[tuple[str, np.ndarray]]:
    """Return two frames with captions: the start of an episode, and after random actions.

    Args:
        env: Made with `render_mode="rgb_array"`; left in the middle of an episode.
    """
    env.action_space.seed(SEED)
    env.reset(seed=SEED)
    pictures = [("start", _frame(env))]
    steps, ended = 0, False
    while steps < _STEPS_TO_THE_SECOND_PICTURE and not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps, ended = steps + 1, bool(terminated or truncated)
    words = f"after {steps} random action{'s' if steps > 1 else ''}"
    pictures.append((words + (", where the episode ended" if ended else ""), _frame(env)))
    return pictures


def _terms(info: dict[str, Any]) -> dict[str, float]:
    terms = info.get("reward_terms")
    return terms if isinstance(terms, dict) else {}


def _end(info: dict[str, Any], *, terminated: bool) -> str:
    reason = info.get("end_reason")
    return str(reason) if reason else ("terminated" if terminated else "time_limit")


def _frame(env: gym.Env) -> np.ndarray:
    frame = np.asarray(env.render())
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"render() gave an array of shape {frame.shape}, not an image")
    return frame.astype(np.uint8)


def make_picture(spec: EnvConfig, path: Path) -> None:
    """Write an image of an environment at the start and after random actions.

    Args:
        spec: What to make.
        path: The file; it ends in .png.

    Raises:
        ConfigError: The environment renders no images, or the file cannot be written.
    """
    from PIL import Image

    from rlzoo_plus.runs.media import caption

    check_path(path)
    env = make_env(spec, render_mode="rgb_array")
    try:
        pictures = start_and_later(env)
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"--picture: {spec.id} renders no image: {error}.") from error
    finally:
        env.close()
    row = np.hstack([caption(frame, words) for words, frame in pictures])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(path)
    except OSError as error:
        raise ConfigError(f"--picture {path} cannot be written: {error}.") from error


def check_path(path: Path) -> None:
    """Refuse a file name that is not a PNG before any work.

    Raises:
        ConfigError: It does not end in .png, or is a folder.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ConfigError(f"--picture {path} is no .png file. Name one: --picture inspect.png")

"""Videos that explain: policies side by side, numbers beside the picture, the worst episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from PIL.ImageFont import load_default
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.recorder import end_of, terms_of
from rlzoo_plus.policies.values import Values
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import Step, evaluate, one_torch_thread, play
from rlzoo_plus.training.media import caption, make_rendering_env, real_time, rendered, write_video

MOST_POLICIES = 9
_N_SEEDS = 100
# Of the panel of numbers [pixels].
_PANEL_WIDTH, _SECOND_COLUMN, _LINE = 300, 170, 15
_PLAYED_AT_ONCE = 10
# Entries of an action that have room.
_MOST_ENTRIES = 16


@dataclass(frozen=True)
class Shown:
    """A policy in a video."""

    run: Run  # For its environment; it has been opened with the trust that it needs
    policy: Policy  # It acts
    label: str  # Shown below the picture


def record_policies(
    shown: Sequence[Shown],
    out: Path,
    *,
    seconds: float = 10.0,
    seed: int = 0,
    deterministic: bool = True,
    overlay: bool = False,
    worst_of: int = 0,
) -> int:
    """Record policies side by side, in real time; return the number of frames.

    All play the same held-out episodes; where one ends, the next begins.

    Args:
        shown: The policies.
        out: A .mp4 or .gif file.
        seconds: Length of the video [s].
        seed: Chooses the held-out episodes.
        deterministic: Act without exploration.
        overlay: Show step, action, reward with its terms, value and end beside the picture.
        worst_of: Play so many episodes first, and show each policy's from the worst on.

    Raises:
        ConfigError: There are too many, an environment renders no images, or their videos would
            not have the same frame rate.
    """
    if not 1 <= len(shown) <= MOST_POLICIES:
        raise ConfigError(f"{len(shown)} policies: a video shows from 1 to {MOST_POLICIES}.")
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_torch_thread())
        venvs = [stack.enter_context(contextlib.closing(make_rendering_env(each.run.config)))
                 for each in shown]  # fmt: skip
        rates = [real_time(venv)[1] for venv in venvs]
        if max(rates) - min(rates) > 0.01:
            told = ", ".join(f"{e.label}: {r:g}" for e, r in zip(shown, rates, strict=True))
            raise ConfigError(f"frames a second differ ({told}). Record them one by one.")
        parts = []
        for each, venv in zip(shown, venvs, strict=True):
            seeds = held_out_seeds(max(_N_SEEDS, worst_of), seed)
            if worst_of:
                played = each.run, each.policy, worst_of
                worst = worst_seeds(*played, seed=seed, deterministic=deterministic)
                seeds = [*worst, *seeds[worst_of:]]
            parts.append(_frames(each, venv, seeds, deterministic=deterministic, overlay=overlay))
        n_frames = max(1, round(seconds * rates[0]))
        tiles = map(tiled, zip(*parts, strict=False))
        return write_video(islice(tiles, n_frames), out, rates[0])


def worst_seeds(
    run: Run, policy: Policy, episodes: int, *, seed: int = 0, deterministic: bool = True
) -> list[int]:
    """Return the seeds of held-out episodes, that of the lowest return first."""
    seeds = held_out_seeds(episodes, seed)
    with contextlib.closing(run.env(min(_PLAYED_AT_ONCE, episodes))) as venv:
        returns = evaluate(policy, venv, seeds, deterministic=deterministic).returns
    # NaN is worst.
    order = np.argsort(np.nan_to_num(returns, nan=-np.inf), kind="stable")
    return [seeds[place] for place in order]


def _frames(
    shown: Shown, venv: VecEnv, seeds: Sequence[int], *, deterministic: bool, overlay: bool
) -> Iterator[np.ndarray]:
    """Yield the frames of one policy, without an end."""
    stride, fps = real_time(venv)
    values, starts = Values(shown.policy), np.ones(1, dtype=bool)
    venv.env_method("set_episode_seeds", list(seeds))
    episode_return, number, ended = 0.0, 0, ""
    for count, step in enumerate(play(shown.policy, venv, deterministic=deterministic)):
        value = values(step.observation, step.action, starts) if overlay else None
        starts = step.done
        number, episode_return = number + 1, episode_return + float(step.reward[0])
        if step.done[0]:
            # The picture shows the next episode already.
            ended = f"{end_of(step.infos[0])} at step {number}, return {episode_return:.1f}"
        if count % stride == 0:
            picture = caption(rendered(venv), f"{shown.label}   return {episode_return:.0f}")
            if overlay:
                lines = describe(step, number, episode_return, values.kind, value, ended)
                picture = np.hstack([picture, panel(lines, len(picture))])
            yield picture
        if step.done[0]:
            number, episode_return = 0, 0.0
        elif number > fps * stride:
            ended = ""


def describe(
    step: Step, number: int, episode_return: float, kind: str | None, value: Any, ended: str
) -> list[str]:
    """Return the lines beside a picture; a tab leads to the second column."""
    lines = [f"step\t{number}", f"return\t{episode_return:.2f}"]
    lines += [f"reward\t{float(step.reward[0]):+.3f}"]
    if kind is not None and value is not None:
        lines.append(f"{kind}\t{float(value[0]):.2f}")
    action = np.asarray(step.action[0]).reshape(-1)[:_MOST_ENTRIES]
    lines += ["", "action"]
    for first in range(0, len(action), 4):
        lines.append("  " + " ".join(f"{entry:+.2f}" for entry in action[first : first + 4]))
    if terms := terms_of(step.infos[0]):
        lines += ["", "reward terms"]
        lines += [f"  {printable(name, 20)}\t{term:+.3f}" for name, term in terms.items()]
    return [*lines, "", "ended:", f"  {printable(ended, 60)}"] if ended else lines


def panel(lines: Sequence[str], height: int) -> np.ndarray:
    """Return lines of text as a picture, uint8 of shape (height, 300, 3); the rest is cut."""
    image = Image.new("RGB", (_PANEL_WIDTH, height), (18, 18, 18))
    draw, font = ImageDraw.Draw(image), load_default(12)
    for row, line in enumerate(lines):
        for x, text in zip((10, _SECOND_COLUMN), line.split("\t"), strict=False):
            draw.text((x, 8 + row * _LINE), text, fill=(230, 230, 230), font=font)
    return np.array(image)


def tiled(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return pictures as one, in rows from the left; smaller ones get a black border."""
    columns = ceil(len(pictures) ** 0.5)
    rows = ceil(len(pictures) / columns)
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    whole = np.zeros((rows * height, columns * width, 3), np.uint8)
    for place, picture in enumerate(pictures):
        top, left = place // columns * height, place % columns * width
        whole[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return whole

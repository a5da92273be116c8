"""Clips of episodes, in pairs to compare, and their folder: numbers, without pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.atomic import DamagedFolderError, read_folder, write_folder
from rlzoo_plus.artifacts.tree import STATE_FILE, TENSOR_FILE, pack, unpack
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.reward_inputs import RewardInputs

KIND = "rlzoo_plus clips"
MOST_PAIRS, MOST_CLIP_STEPS = 2_000, 1_000
_LARGEST = {STATE_FILE: 2**23, TENSOR_FILE: 2**29}


@dataclass(frozen=True)
class Clip:
    """The last steps of a part of an episode."""

    seed: int  # Of the reset before it
    actions: np.ndarray  # From the reset on: so it can be played again
    own_rewards: np.ndarray  # Of the environment, from the reset on, float64
    # What a reward model sees of the clip's steps, float32 of shape (n_steps, size)
    rows: np.ndarray

    @property
    def rewards(self) -> np.ndarray:
        """The environment's rewards of the clip's steps."""
        return self.own_rewards[-len(self.rows) :]

    def check(self, size: int) -> None:
        """Raise a ValueError if a number is not what it must be."""
        n_steps, end = len(self.rows), len(self.own_rewards)
        if type(self.seed) is not int or not 0 <= self.seed < 2**32:
            raise ValueError("the seed of a clip is malformed")
        if not 1 <= n_steps <= MOST_CLIP_STEPS or self.rows.shape != (n_steps, size):
            raise ValueError(f"a clip is of shape {self.rows.shape}")
        if not n_steps <= end == len(self.actions) or self.own_rewards.shape != (end,):
            raise ValueError("the parts of a clip are of different lengths")
        if self.rows.dtype != np.float32 or self.own_rewards.dtype != np.float64:
            raise ValueError("a clip is of other types of numbers")
        if not (np.isfinite(self.rows).all() and np.isfinite(self.own_rewards).all()):
            raise ValueError("a number in a clip is NaN or infinite")


@dataclass(frozen=True)
class Clips:
    """Clips of one task, and which are compared."""

    inputs: RewardInputs
    clips: Sequence[Clip]
    pairs: np.ndarray  # Left and right clip of each pair, int64 of shape (n_pairs, 2)
    about: Mapping[str, Any]  # `env`, `run` and `steps_per_second`
    digest: str = ""  # Of what is in the folder

    def pair(self, number: int) -> tuple[Clip, Clip]:
        """Return the left and the right clip of a pair."""
        left, right = self.pairs[number].tolist()
        return self.clips[left], self.clips[right]

    def write(self, folder: Path) -> Clips:
        """Write them to a new folder; return them as they are read."""
        state = {
            "spaces": self.inputs.data,
            "clips": [[c.seed, c.actions, c.own_rewards, c.rows] for c in self.clips],
            "pairs": self.pairs,
        }
        try:
            write_folder(folder, pack(state), {"kind": KIND, **self.about})
        except OSError as error:
            raise ConfigError(
                f"{printable(folder)} cannot be written: {error.strerror}."
            ) from error
        return read_clips(folder)


def read_clips(folder: Path) -> Clips:
    """Read the clips in a folder; every number in them is checked.

    Raises:
        ConfigError: There are none, or they are damaged or too large.
    """
    try:
        files, about = read_folder(folder, _LARGEST)
        if about.get("kind") != KIND:
            raise ValueError("there are no clips in it")
        state = unpack(files)
        digest = hashlib.sha256(files[STATE_FILE] + files[TENSOR_FILE]).hexdigest()[:16]
        inputs = RewardInputs.from_data(state["spaces"])
        clips, pairs = [Clip(*clip) for clip in state["clips"]], state["pairs"]
        for clip in clips:
            clip.check(inputs.size)
        if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError("its pairs are malformed")
        if not 1 <= len(pairs) <= MOST_PAIRS or len(clips) > 2 * MOST_PAIRS:
            raise ValueError(f"it has {len(pairs)} pairs of {len(clips)} clips")
        if pairs.min() < 0 or pairs.max() >= len(clips):
            raise ValueError("a pair is of no clips")
    except (
        *(DamagedFolderError, OSError, ValueError, LookupError, TypeError, AttributeError),
    ) as error:
        raise ConfigError(
            f"{printable(folder)} holds no clips that can be used: {one_line(error)}. Move it "
            "away, and record others: rlzoo-plus prefer RUN --out FOLDER."
        ) from error
    return Clips(inputs, clips, pairs, about, digest)

"""Clips of a made-up task, whose reward is known."""

import numpy as np
from gymnasium import spaces

from rlzoo_plus.preferences.clips import Clip, Clips
from rlzoo_plus.preferences.preference_folder import Preferences
from rlzoo_plus.preferences.reward_inputs import RewardInputs

INPUTS = RewardInputs(spaces.Box(-10, 10, (3,), np.float32), spaces.Box(-1, 1, (1,), np.float32))


def made_clips(n_pairs, seed=0, lengths=(10,)):
    """Return clips of walks, whose reward is 1 near the middle, and 0 far away."""
    rng = np.random.default_rng(seed)
    clips = []
    for number in range(2 * n_pairs):
        n_steps = int(rng.choice(lengths))
        walk = rng.normal(size=3) + np.cumsum(rng.normal(0.0, 0.3, (n_steps, 3)), axis=0)
        actions = rng.uniform(-1, 1, (n_steps, 1)).astype(np.float32)
        rows = np.hstack([walk, actions]).astype(np.float32)
        rewards = np.exp(-np.abs(walk[:, 0])).astype(np.float64)
        clips.append(Clip(number, actions, rewards, rows))
    pairs = np.arange(2 * n_pairs).reshape(-1, 2)
    about = {"env": "Walk-v0", "run": "", "steps_per_second": 30.0}
    return Clips(INPUTS, clips, pairs, about)


def answered(folder, clips, rater):
    """Return a folder of preferences with the answers of a rater."""
    preferences = Preferences(folder)
    written = preferences.add(clips)
    for pair, answer in enumerate(rater.answers(written)):
        preferences.answer(written, pair, answer, "synthetic")
    return preferences

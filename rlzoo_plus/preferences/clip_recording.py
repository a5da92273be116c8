"""Records clips of a run: its policies, with more and more random actions between theirs.

What one trained policy does is all alike, and says little about what is good. Random actions in
between make clips of every quality (Brown et al. 2019, arXiv:1907.03976), and the ends of episodes
are always among them: how one ends is what a reward must tell.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.policies.baselines import random_actions
from rlzoo_plus.policies.entries import stacked
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.preferences.clips import Clip, Clips
from rlzoo_plus.preferences.reward_inputs import RewardInputs
from rlzoo_plus.preferences.reward_model import RewardModel
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.media import steps_per_second

# Of actions that are random.
_SHARES = (0.0, 0.3, 0.6, 1.0)
_MOST_CHECKPOINTS = 4
# Pairs of which those are chosen that the ensemble disagrees on.
_CANDIDATES = 10
# Beside those of evaluations and of demonstrations, which begin elsewhere.
_SEEDS_BELOW, _STREAM = 2**29, 50_000


class NoisyPolicy:
    """A policy, some of whose actions are replaced by random ones."""

    normalizer, network = None, None

    def __init__(self, policy: Any, space: spaces.Space[Any], share: float, seed: int) -> None:
        """Replace a share of the actions."""
        self.maskable = policy.maskable
        self._policy, self._share = policy, share
        self._random = random_actions(space, maskable=policy.maskable)
        self._rng = np.random.default_rng([seed, round(100 * share)])

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Return actions, as a policy does."""
        given = observation, state, episode_start, deterministic, action_masks
        actions, state = self._policy.predict(*given)
        drawn, _ = self._random.predict(*given)
        is_random = self._rng.random(len(actions)) < self._share
        shape = (-1, *(1 for _ in actions.shape[1:]))
        return np.where(is_random.reshape(shape), drawn, actions).astype(actions.dtype), state


def record_clips(
    run: Run, which: str | None, n_pairs: int, clip_steps: int, seed: int, model: RewardModel | None
) -> Clips:
    """Play episodes of a run, and return pairs of clips of them.

    Args:
        run: Its policies play: checkpoints and the best.
        which: The one that plays alone; None for all.
        n_pairs: How many pairs.
        clip_steps: Steps of a clip, at most: an episode may be shorter.
        seed: Chooses episodes and clips.
        model: Pairs are those on which its members disagree most; None for random pairs.

    Raises:
        ConfigError: A reward model cannot see the observations.
    """
    run.require_trust()
    with closing(run.env(1)) as venv:
        inputs = RewardInputs(venv.observation_space, venv.action_space)
        about = {"env": run.config.env.id, "steps_per_second": steps_per_second(venv)}
    policies = [run.policy(one) for one in _played(run, which)]
    actors = [NoisyPolicy(p, inputs.action, share, seed) for p in policies for share in _SHARES]
    rng = np.random.default_rng([_STREAM, seed])
    clips: list[Clip] = []
    # Two of each episode.
    each = max(1, -(-n_pairs // len(actors)))
    for actor in actors:
        seeds = rng.integers(0, _SEEDS_BELOW, size=each).tolist()
        episodes, _ = record_episodes(run, actor, seeds, deterministic=True)
        for episode in episodes:
            last = max(episode.n_steps - clip_steps, 0)
            for start in (last, int(rng.integers(last + 1))):
                clips.append(_clip(episode, inputs, start, clip_steps))
    pairs = _pairs(clips, n_pairs, model, rng)
    return Clips(inputs, clips, pairs, {**about, "run": str(run.path)})


def _pairs(
    clips: list[Clip], n_pairs: int, model: RewardModel | None, rng: np.random.Generator
) -> np.ndarray:
    """Return which clips are compared, int64 of shape (n_pairs, 2)."""
    if model is None:
        return rng.permutation(len(clips))[: 2 * n_pairs].reshape(-1, 2)
    sums = np.stack([model.members(clip.rows).sum(axis=1) for clip in clips], axis=1)
    left, right = rng.integers(len(clips), size=(2, _CANDIDATES * n_pairs))
    right = np.where(left == right, (right + 1) % len(clips), right)
    chances = 1.0 / (1.0 + np.exp(np.clip(sums[:, left] - sums[:, right], -50.0, 50.0)))
    chosen = rng.permutation(np.argsort(-chances.std(axis=0), kind="stable")[:n_pairs])
    pairs: np.ndarray = np.stack([left[chosen], right[chosen]], axis=1)
    return pairs


def _played(run: Run, which: str | None) -> list[str]:
    """Return the names of the policies that play."""
    if which is not None or run.status == "bundle":
        return [which or run.which]
    steps = run.run_dir.checkpoints().steps()
    chosen = np.linspace(0, len(steps) - 1, min(len(steps), _MOST_CHECKPOINTS)).round()
    return [*dict.fromkeys([*(str(steps[int(place)]) for place in chosen), run.which])]


def _clip(episode: Episode, inputs: RewardInputs, start: int, clip_steps: int) -> Clip:
    end = min(start + clip_steps, episode.n_steps)
    actions, seen = episode.actions[:end], stacked((episode.observations or [])[start:end])
    rows = np.hstack([inputs.of_observations(seen), inputs.of_actions(actions[start:])])
    return Clip(episode.seed, actions, np.asarray(episode.rewards[:end], np.float64), rows)

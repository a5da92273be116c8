"""What is wrong with a reward, from the episodes of a few simple policies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.learning_cause import Cause
from rlzoo_plus.doctor.learning_probe import Evidence

# Of the mean; below, all steps earn the same.
_VARIES = 1e-3
_LARGE, _SMALL = 1e3, 1e-3


def reward_causes(config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    """Yield what is wrong with the reward."""
    rewards = seen.rewards
    if not len(rewards):
        return
    if np.ptp(rewards) <= _VARIES * max(float(np.abs(rewards).mean()), 1e-12):
        yield from _same_everywhere(config, seen, float(rewards.mean()))
        return
    yield from _doing_nothing(seen)
    size = float(np.percentile(np.abs(rewards), 90))
    if config.normalize is not None and config.normalize.reward:
        return
    if size > _LARGE or float(np.abs(rewards).max()) < _SMALL:
        yield Cause(
            "reward_scale",
            f"rewards are of size {size:.2g} a step: the value function's loss is far "
            f"{'larger' if size > 1 else 'smaller'} than a step of the optimizer can follow",
            "Set normalize.reward=true, or scale the reward to about 1 a step",
        )


def _same_everywhere(config: RunConfig, seen: Evidence, value: float) -> Iterator[Cause]:
    """Yield a cause unless it is the length of episodes that is rewarded, and that varies."""
    lengths = {len(episode.rewards) for episode in seen.episodes if episode.terminated}
    if value != 0 and len(lengths) > 1:
        return
    many = f"{value:.3g} at each of {len(seen.rewards)} steps, of {len(seen.episodes)} episodes"
    if value > 0:
        yield Cause(
            "reward_constant",
            f"the reward was {many}: nothing is better than anything else",
            "Reward what the task is about",
        )
    # Hindsight replay is for such rewards.
    elif (config.algo.replay_buffer or config.algo.name) != "her":
        yield Cause(
            "reward_sparse",
            f"the reward was {many}: no random, held or jumpy action ever met the goal",
            "Reward progress, begin nearer to the goal, or use algo=her with goals",
        )


def _doing_nothing(seen: Evidence) -> Iterator[Cause]:
    nothing = [episode for episode in seen.of("nothing") if len(episode.rewards)]
    others = [e.rewards for e in seen.of("random", "held", "jumpy", "small") if len(e.rewards)]
    if not nothing or not others or any(episode.terminated for episode in nothing):
        return
    idle = np.concatenate([episode.rewards for episode in nothing])
    acting = np.concatenate(others)
    best = float(np.percentile(acting, 99.5))
    if float(idle.mean()) >= best - _VARIES * abs(best):
        yield Cause(
            "reward_for_nothing",
            f"doing nothing earns {idle.mean():.3g} a step, and acting at most {best:.3g}: "
            "a policy learns to stand still",
            "Weigh the cost of acting lower, or what the task wants higher",
        )

"""The running statistics of VecNormalize, merged over ranks so that all of them agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd

from rlzoo_plus.ranks.group import Group


def statistics_of(agent: Any) -> list[RunningMeanStd]:
    """Return the statistics of an agent's environments: of observations, and of returns."""
    venv = agent.get_vec_normalize_env()
    if venv is None:
        return []
    observed = getattr(venv, "obs_rms", None) if venv.norm_obs else None
    parts = observed.values() if isinstance(observed, dict) else [observed]
    return [part for part in (*parts, venv.ret_rms) if part is not None]


def merge(now: Sequence[RunningMeanStd], before: Sequence[RunningMeanStd], group: Group) -> None:
    """Give all ranks the statistics of what all of them have seen.

    Args:
        now: Those of this rank.
        before: What all ranks had in common when they began to see different things.
        group: The ranks.
    """
    if not now:
        return
    own = np.concatenate([_news(new, old) for new, old in zip(now, before, strict=True)])
    news = group.total(torch.from_numpy(own)).numpy()
    start = 0
    for target, old in zip(now, before, strict=True):
        size = np.size(old.mean)
        count, shift, square = _parts(news[start : start + 1 + 2 * size], np.shape(old.mean))
        total = old.count + count
        moved = shift / total
        target.mean = old.mean + moved
        target.var = (old.count * old.var + square) / total - np.square(moved)
        target.count = total
        start += 1 + 2 * size


def adopt(own: Sequence[RunningMeanStd], group: Group) -> None:
    """Replace the statistics by those of rank 0."""
    for part in own:
        flat = np.concatenate([np.ravel(part.mean), np.ravel(part.var), [part.count]])
        flat = group.from_first(torch.from_numpy(flat)).numpy()
        size, shape = np.size(part.mean), np.shape(part.mean)
        part.mean, part.var = flat[:size].reshape(shape), flat[size:-1].reshape(shape)
        part.count = float(flat[-1])


def _news(now: RunningMeanStd, before: RunningMeanStd) -> np.ndarray:
    """Return count, sum and sum of squares of what came since; relative to the mean before."""
    moved = now.mean - before.mean
    square = now.count * (now.var + np.square(moved)) - before.count * before.var
    return np.concatenate(
        [[now.count - before.count], np.ravel(now.count * moved), np.ravel(square)]
    )


def _parts(flat: np.ndarray, shape: tuple[int, ...]) -> tuple[float, np.ndarray, np.ndarray]:
    size = (len(flat) - 1) // 2
    return float(flat[0]), flat[1 : 1 + size].reshape(shape), flat[1 + size :].reshape(shape)

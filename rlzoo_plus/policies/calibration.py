"""How well a critic knows what comes: its values against the returns that followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlzoo_plus.policies.episode import Episode

_ROUNDS = 10


@dataclass(frozen=True)
class Calibration:
    """The values of a critic against discounted returns, over all steps of some episodes."""

    bias: float  # Mean of value minus return
    correlation: float | None  # Of both; None where one does not vary
    mean_return: float  # Mean of the discounted returns
    td_error: float  # Mean absolute error of one step: reward and next value against the value
    spread: float  # Standard deviation of the values
    # What one unit of reward is for the critic: 1 unless it was trained on normalised rewards; then
    # the scale that fits best (least squares), since a policy does not hold it
    scale: float


def calibrate(
    episodes: Sequence[Episode], after: Sequence[float], gamma: float, *, is_scaled: bool = False
) -> Calibration:
    """Compare values with discounted returns.

    Args:
        episodes: With values.
        after: The value of the last observation of each, which stands for what a limit of its
            length has cut off; episodes that the environment ended go on with 0.
        gamma: Discount factor.
        is_scaled: Whether the critic was trained on rewards in another, unknown unit.
    """
    pairs = zip(episodes, after, strict=True)
    cut = np.array([0.0 if episode.terminated else value for episode, value in pairs])
    values = np.concatenate([np.asarray(e.values) for e in episodes])
    scale = 1.0
    for _ in range(_ROUNDS if is_scaled else 0):
        returns = _returns(episodes, cut / scale, gamma)
        square = float(returns @ returns)
        scale = max(float(values @ returns) / square, 1e-9) if square > 0 else 1.0
    known, ends = values / scale, cut / scale
    returns = _returns(episodes, ends, gamma)
    steps = [
        e.rewards + gamma * np.append(np.asarray(e.values)[1:] / scale, end)
        for e, end in zip(episodes, ends, strict=True)
    ]
    return Calibration(
        bias=float(np.mean(known - returns)),
        correlation=correlation(known, returns),
        mean_return=float(np.mean(returns)),
        td_error=float(np.mean(np.abs(np.concatenate(steps) - known))),
        spread=float(np.std(known)),
        scale=scale,
    )


def correlation(left: np.ndarray, right: np.ndarray) -> float | None:
    """Return Pearson's correlation, None where one of both does not vary."""
    if len(left) < 2 or np.std(left) < 1e-12 or np.std(right) < 1e-12:
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _returns(episodes: Sequence[Episode], after: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted return from each step of all episodes on."""
    found: list[float] = []
    # From the end of the last episode backwards.
    for episode, total in zip(reversed(episodes), after[::-1].tolist(), strict=True):
        for reward in reversed(episode.rewards.tolist()):
            total = reward + gamma * total
            found.append(total)
    return np.array(found[::-1])

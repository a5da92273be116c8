"""What acts without having learned: nothing, random actions, always the same action."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

# More discrete actions than this are not tried one by one.
_MOST_CONSTANTS = 6


class Baseline:
    """Acts without looking; where an action is masked, it does the first that is allowed."""

    normalizer, network = None, None

    def __init__(
        self, space: spaces.Space[Any], draw: Callable[[], Any], *, maskable: bool = False
    ) -> None:
        """Act with what `draw` returns at each step."""
        self.maskable = maskable
        self._space, self._draw = space, draw

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, None]:
        """Return actions, as a policy does, for as many environments as `episode_start` has."""
        assert episode_start is not None
        actions = np.stack([np.asarray(self._draw(), self._space.dtype) for _ in episode_start])
        if action_masks is not None:
            actions = np.stack(
                [_allowed(self._space, *pair) for pair in zip(actions, action_masks, strict=True)]
            )
        return actions, None


def random_actions(space: spaces.Space[Any], *, maskable: bool = False) -> Baseline:
    """Return what draws each action from the action space."""
    own = copy.deepcopy(space)
    own.seed(0)
    own.sample()
    return Baseline(own, own.sample, maskable=maskable)


def baselines(space: spaces.Space[Any], *, maskable: bool = False) -> dict[str, Baseline]:
    """Return what to compare a policy with, by name.

    Doing nothing is the action 0 of a continuous space, or what is nearest to it; a choice among
    actions has no such thing.
    """
    constants: dict[str, Any] = {}
    if isinstance(space, spaces.Box):
        constants["nothing"] = np.clip(np.zeros(space.shape), space.low, space.high)
        if np.isfinite(space.low).all() and np.isfinite(space.high).all():
            constants |= {"always the lowest": space.low, "always the highest": space.high}
    elif isinstance(space, spaces.Discrete):
        first = int(space.start)
        count = min(int(space.n), _MOST_CONSTANTS)
        constants = {f"always {action}": action for action in range(first, first + count)}
    elif isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        constants["always 0"] = np.zeros(space.shape)
    found = {
        name: Baseline(space, functools.partial(np.asarray, action), maskable=maskable)
        for name, action in constants.items()
    }
    return {**found, "random": random_actions(space, maskable=maskable)}


def _allowed(space: spaces.Space[Any], action: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return an action with each masked choice replaced by the first that is allowed."""
    counts = getattr(space, "nvec", np.full(space.shape or (1,), getattr(space, "n", 2))).ravel()
    if isinstance(space, spaces.MultiBinary):
        counts = np.full(int(np.prod(space.shape)), 2)
    chosen = action.reshape(-1).copy()
    start = int(getattr(space, "start", 0)) if isinstance(space, spaces.Discrete) else 0
    for place, part in enumerate(np.split(np.ravel(mask), np.cumsum(counts)[:-1])):
        if not part[int(chosen[place]) - start]:
            chosen[place] = start + int(np.flatnonzero(part)[0])
    return chosen.reshape(action.shape)

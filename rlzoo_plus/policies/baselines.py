"""What acts without having learned: nothing, random actions, always the same action."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

# More discrete actions than this are not tried one by one.
_MOST_CONSTANTS = 6


class FixedAction:
    """Does the same at every step; where that is masked, the first allowed action."""

    normalizer, network = None, None

    def __init__(self, space: spaces.Space[Any], action: Any, *, maskable: bool = False) -> None:
        self.maskable = maskable
        self._space, self._action = space, np.asarray(action, space.dtype)

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
        actions = np.stack([self._draw() for _ in episode_start])
        if action_masks is not None:
            actions = np.stack(
                [_allowed(self._space, *pair) for pair in zip(actions, action_masks, strict=True)]
            )
        return actions, None

    def _draw(self) -> np.ndarray:
        return self._action


class RandomActions(FixedAction):
    """Draws each action from the action space; where it is masked, the first allowed one."""

    def __init__(self, space: spaces.Space[Any], seed: int = 0, *, maskable: bool = False) -> None:
        own = copy.deepcopy(space)
        own.seed(seed)
        super().__init__(own, own.sample(), maskable=maskable)

    def _draw(self) -> np.ndarray:
        return np.asarray(self._space.sample(), self._space.dtype)


def baselines(space: spaces.Space[Any], *, maskable: bool = False) -> dict[str, FixedAction]:
    """Return what to compare a policy with, by name.

    Doing nothing is the action 0 of a continuous space, or what is nearest to it; a choice among
    actions has no such thing.
    """
    found: dict[str, FixedAction] = {}
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
    for name, action in constants.items():
        found[name] = FixedAction(space, action, maskable=maskable)
    return {**found, "random": RandomActions(space, maskable=maskable)}


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

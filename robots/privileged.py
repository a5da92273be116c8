"""What an observation leaves out: the conditions of the episode, and the state behind the noise."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.randomization import Randomizer
from robots.sensors import State

KEY = "privileged"
# What the state of the start shows anyway.
_NOT_SHOWN = ("initial_position", "initial_velocity")
# What is no row of numbers, or no reading of the robot.
_NOT_READ = ("ranges", "image", "memory", "partners")


class Hidden(Protocol):
    """The parts of ``Conditions`` that a policy does not see."""

    randomizer: Randomizer
    actuation: Any
    command: NDArray[np.float64]


class Privileged:
    """Adds an entry ``privileged`` to observations, for a critic to learn from.

    Its numbers are what was drawn for the episode, the actions that have not arrived yet, pushes,
    what the sensors of the robot read, and the observation before noise and delay.

    Attributes:
        space: Space of the observations with it.
        names: What each of its numbers is.
    """

    def __init__(self, conditions: Hidden, space: spaces.Space[Any], state: State) -> None:
        """Lay out the entry.

        Args:
            conditions: Of the environment.
            space: Space of the observations without it.
            state: Any state of the world.
        """
        randomizer, actuation = conditions.randomizer, conditions.actuation
        self._drawn = [
            (name, 1 if size is None else size)
            for name, size in randomizer.sizes.items()
            if name not in _NOT_SHOWN
        ]
        latency = randomizer.draws.get("latency")
        self._longest = actuation.latency + (0 if latency is None else round(latency.high))
        part = space["observation"] if isinstance(space, spaces.Dict) else space
        is_blurred = randomizer.noise is not None or randomizer.delays
        self._shows_clean = is_blurred and len(part.shape or ()) == 1
        self._fields = [
            name
            for name in State._fields
            if name not in _NOT_READ and getattr(state, name) is not None
        ]
        self.names = (
            *_numbered(self._drawn),
            *_numbered([("action_under_way", self._longest * len(conditions.command))]),
            *_numbered([("action_arrived", len(conditions.command) * actuation.is_limited)]),
            *(("push_in_s",) if randomizer.pushes else ()),
            *_numbered([("push", len(randomizer.pushed) * randomizer.pushes)]),
            *_numbered([(name, np.size(getattr(state, name))) for name in self._fields]),
            *_numbered([("observation", (part.shape or (0,))[0] * self._shows_clean)]),
        )
        box = spaces.Box(-np.inf, np.inf, (len(self.names),), np.float32)
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
        self.space = spaces.Dict({**entries, KEY: box})

    def of_episode(self, conditions: Hidden) -> NDArray[np.float64]:
        """Return what is known of the episode of one world now."""
        randomizer, actuation = conditions.randomizer, conditions.actuation
        parts = [np.ravel(randomizer.drawn[name]) for name, _ in self._drawn]
        progress, n_actions = actuation.progress(), len(conditions.command)
        under_way = np.zeros((self._longest, n_actions))
        under_way[: len(progress["under_way"])] = progress["under_way"]
        parts.append(under_way.ravel())
        if actuation.is_limited:
            parts.append(progress["arrived"])
        if randomizer.pushes:
            parts += [np.array([randomizer.push_in_s]), randomizer.pushed]
        return np.concatenate(parts).astype(np.float64)

    def add(self, seen: Any, clean: Any, state: State, conditions: Sequence[Hidden]) -> Any:
        """Return observations with the entry.

        Args:
            seen: Of one world, or of many.
            clean: The same before noise and delay.
            state: What was read.
            conditions: Of the one world, or of each.
        """
        known = np.stack([self.of_episode(one) for one in conditions])
        # One world has no first dimension.
        shape = np.shape(state.joint_position)[:-1]
        parts = [known.reshape(*shape, -1)]
        parts += [np.reshape(getattr(state, name), (*shape, -1)) for name in self._fields]
        if self._shows_clean:
            parts.append(clean["observation"] if isinstance(clean, dict) else clean)
        entries = seen if isinstance(seen, dict) else {"observation": seen}
        return {**entries, KEY: np.concatenate(parts, axis=-1).astype(np.float32)}


def _numbered(sizes: Sequence[tuple[str, int]]) -> list[str]:
    """Return names of so many numbers each."""
    return [
        name if size == 1 else f"{name}_{index}" for name, size in sizes for index in range(size)
    ]

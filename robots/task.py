"""A task: where an episode starts, what is observed, what is rewarded, and when it ends."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.rewards import Floats
from robots.robot import RobotState

Bools = NDArray[np.bool_]

_FLOAT32 = np.dtype(np.float32)


def columns(array: Floats) -> list[Floats]:
    """Return ``array[..., i]`` for every ``i`` of the last dimension.

    For one world they are Python floats, which cost a tenth of 0-d arrays in the arithmetic of a
    step and follow the same IEEE 754 rules; for many they are arrays of shape (...).

    Args:
        array: Shape (..., n).
    """
    if array.ndim == 1:
        return cast(list[Floats], array.tolist())
    return list(np.moveaxis(array, -1, 0))


def observation_of(*values: Floats) -> NDArray[np.float32]:
    """Return n values of shape (...) side by side as float32, shape (..., n)."""
    stacked = np.array(values, _FLOAT32)
    return stacked if stacked.ndim == 1 else np.moveaxis(stacked, 0, -1).copy()


class Task(ABC):
    """What a robot should do.

    A task holds no state of an episode; one that must gives it with ``state_dict``. Its functions
    take arrays whose leading dimensions, written ``...``, count worlds: none for one environment,
    (n_worlds,) for many. Take arrays apart with ``columns`` and keep to elementwise NumPy, and both
    give the same numbers. Write squares as ``x * x``: the operator ``**`` rounds a float otherwise
    than an array.

    Attributes:
        weights: Weight of every reward term; the reward is the sum of weights times terms.
    """

    reward_weights: ClassVar[Mapping[str, float]]
    """Default weight of every reward term, by name."""
    observation_space: ClassVar[spaces.Box]
    """Space of the observation of one world, float32."""

    def __init__(self, reward: Mapping[str, float] | None = None) -> None:
        """Set the weights of the reward.

        Args:
            reward: Weights that replace the defaults of the terms they name.

        Raises:
            ValueError: If it names a term that the task does not have.
        """
        for name in reward or {}:
            if name not in self.reward_weights:
                close = get_close_matches(name, self.reward_weights, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                known = ", ".join(self.reward_weights)
                raise ValueError(f"reward term {name!r} is unknown.{hint} Known terms: {known}.")
        self.weights = {**self.reward_weights, **(reward or {})}

    @abstractmethod
    def sample_initial_state(self, rng: np.random.Generator) -> RobotState:
        """Draw the state in which an episode of one world starts.

        Args:
            rng: Generator of that world.

        Returns:
            Joint positions and velocities, shape (n_joints,).
        """

    @abstractmethod
    def observation(self, state: RobotState) -> NDArray[np.float32]:
        """Return what the policy sees, shape (..., n_observations)."""

    @abstractmethod
    def reward_terms(self, state: RobotState, action: Floats) -> dict[str, Floats]:
        """Return the terms of the reward before weighting.

        Args:
            state: State after the step, arrays of shape (..., n_joints).
            action: Action of the step in [-1, 1], shape (..., n_actuated).

        Returns:
            One value per world, shape (...), for every name in ``reward_weights``.
        """

    @abstractmethod
    def terminations(self, state: RobotState) -> dict[str, Bools]:
        """Return the reasons for ending the episode early, each of shape (...), by name."""

    def success(self, state: RobotState, survived: Bools) -> Bools:
        """Return whether an episode that has just ended was a success.

        Args:
            state: Final state, arrays of shape (..., n_joints).
            survived: Whether the episode ran to its time limit, shape (...).
        """
        del state
        return survived

    def state_dict(self) -> dict[str, Any]:
        """Return what the task remembers of the episode, as plain data; by default nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned.

        Raises:
            ValueError: If it does not fit; the task must then be as it was.
        """
        if state != {}:
            raise ValueError(
                f"state={state!r} of {type(self).__name__} must be empty: it remembers nothing. "
                "Load the state of the same task, or override load_state_dict."
            )

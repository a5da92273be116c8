"""A task: where an episode starts, what is observed, what is rewarded, and when it ends."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.distributions import known_name
from robots.frames import columns, sum_of_squares
from robots.mirror import Mirror
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State

__all__ = ["Bools", "GoalTask", "Task", "columns", "observation_of"]

Bools = NDArray[np.bool_]
Observation = NDArray[np.generic] | dict[str, NDArray[np.float32]]

_FLOAT32 = np.dtype(np.float32)


def observation_of(*values: Floats) -> NDArray[np.float32]:
    """Return n values of shape (...) side by side as float32, shape (..., n)."""
    first = values[0]
    if not isinstance(first, np.ndarray) or first.ndim == 0:
        return np.array(values, _FLOAT32)
    side_by_side = np.empty((*first.shape, len(values)), _FLOAT32)
    for column, value in enumerate(values):
        side_by_side[..., column] = value
    return side_by_side


class Task(ABC):
    """What a robot should do.

    A task keeps no state of an episode: that goes through ``State.memory``. Its functions take
    arrays whose leading dimensions, written ``...``, count worlds: none for one environment,
    (n_worlds,) for many. Both give the same numbers if the functions split arrays with ``columns``
    or ``State.joints`` and use only elementwise NumPy or ``robots.elementary``. Write squares as
    ``x * x``: the operator ``**`` rounds a float differently from an array.

    Attributes:
        weights: Weight of every reward term; the reward is the sum of weights times terms.
    """

    reward_weights: ClassVar[Mapping[str, float]]
    """Default weight of every reward term, by name."""
    observation_space: spaces.Space[Any]
    """Space of the observation of one world: a float32 ``Box``, or a ``Dict`` of a goal task."""
    mirror: Mirror | None = None
    """What swaps the sides of observations and actions; None: nothing, or ``shipped_mirror``."""

    def __init__(self, reward: Mapping[str, float] | None = None) -> None:
        """Set the weights of the reward.

        Args:
            reward: Weights that replace the defaults of the terms they name.

        Raises:
            ValueError: If it names a term that the task does not have.
        """
        for name in reward or {}:
            known_name("reward", name, self.reward_weights)
        self.weights = {**self.reward_weights, **(reward or {})}

    @abstractmethod
    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw where an episode of one world starts, goals and the like in its ``memory``.

        Args:
            rng: Generator of that world.
        """

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the name of each entry of the observation, of a goal task of its ``observation``.

        Args:
            joints: Names of the joints that are read.

        Returns:
            Nothing if they have no names.
        """
        del joints
        return ()

    def remember(self, state: State, action: Floats) -> Memory:
        """Return the memory for the next step; by default the present one.

        Called once after a reset with an action of zeros, then in every step after the reward and
        the terminations, before the observation.

        Args:
            state: State after the step, with the present memory.
            action: Action of the step in [-1, 1], shape (..., n_actions).

        Returns:
            Values of shape (...) or (..., n), always with the same names.
        """
        del action
        return state.memory

    @abstractmethod
    def observation(self, state: State) -> Any:
        """Return what the policy sees, shape (..., n_observations)."""

    @abstractmethod
    def reward_terms(self, state: State, action: Floats) -> Mapping[str, Any]:
        """Return the terms of the reward before weighting.

        Args:
            state: State after the step, with the memory from before it.
            action: Action of the step in [-1, 1], shape (..., n_actions).

        Returns:
            One value per world, shape (...), for every name in ``reward_weights``.
        """

    @abstractmethod
    def terminations(self, state: State) -> Mapping[str, Any]:
        """Return the reasons for ending the episode early, each of shape (...), by name."""

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether an episode that has just ended was a success.

        Args:
            state: Final state; its memory is that of ``remember`` after the last step.
            survived: Whether the episode ran to its time limit, shape (...).
        """
        del state
        return survived


class GoalTask(Task):
    """A task with a goal that can be exchanged afterwards, as hindsight replay does.

    The goal is kept as ``memory["goal"]``. Observations are a ``Dict`` of ``observation``,
    ``achieved_goal`` and ``desired_goal``, the form of Gymnasium-Robotics' ``GoalEnv``. Reward
    terms depend on the two goals alone.

    Attributes:
        tolerance: Distance from the goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"reached": 1.0, "distance": 0.0}

    def __init__(
        self,
        n_observations: int,
        n_goals: int = 3,
        *,
        tolerance: float = 0.05,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set the spaces.

        Args:
            n_observations: Entries of ``observation``.
            n_goals: Entries of a goal.
            tolerance: Distance from the goal that counts as success [m].
            reward: Weights of ``reached`` (0 at the goal, otherwise -1) and ``distance`` (minus
                the distance [m]) to change.

        Raises:
            ValueError: If the tolerance is not positive, or the reward names an unknown term.
        """
        super().__init__(reward)
        if not tolerance > 0:
            raise ValueError(f"tolerance={tolerance} must be positive. Set for example 0.05 [m].")
        self.tolerance = tolerance
        goal = spaces.Box(-np.inf, np.inf, (n_goals,), np.float32)
        self.observation_space = spaces.Dict(
            {
                "achieved_goal": goal,
                "desired_goal": goal,
                "observation": spaces.Box(-np.inf, np.inf, (n_observations,), np.float32),
            }
        )

    @abstractmethod
    def achieved_goal(self, state: State) -> Floats:
        """Return the goal that the state fulfils, shape (..., n_goals)."""

    @abstractmethod
    def features(self, state: State) -> NDArray[np.float32]:
        """Return the rest of the observation, shape (..., n_observations)."""

    def observation(self, state: State) -> dict[str, NDArray[np.float32]]:
        """Return the three parts, float32."""
        achieved, desired = self._goals(state)
        features = self.features(state)
        return {"achieved_goal": achieved, "desired_goal": desired, "observation": features}

    def _goals(self, state: State) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the achieved and the desired goal as the observation has them."""
        achieved, desired = self.achieved_goal(state), state.memory["goal"]
        return achieved.astype(np.float32), desired.astype(np.float32)

    def reward_terms(self, state: State, action: Floats) -> Mapping[str, Any]:
        """Return the terms of the goals as the observation states them."""
        del action
        return self.goal_terms(*self._goals(state))

    def goal_terms(self, achieved: Floats, desired: Floats) -> dict[str, Any]:
        """Return ``reached`` and ``distance`` of shape (...), for goals of shape (..., n_goals)."""
        distance = self.distance(achieved, desired)
        return {"reached": 1.0 * (distance <= self.tolerance) - 1.0, "distance": -distance}

    def compute_reward(self, achieved: Floats, desired: Floats) -> Floats:
        """Return the reward of shape (...), for goals of shape (..., n_goals)."""
        terms = self.goal_terms(np.asarray(achieved), np.asarray(desired))
        reward: Floats = np.zeros(())
        for name, term in terms.items():
            reward = reward + self.weights[name] * term
        return reward

    def terminations(self, state: State) -> Mapping[str, Any]:
        """Return none: an episode lasts until its time limit, as hindsight replay expects."""
        del state
        return {}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the goal is reached at the end."""
        del survived
        near: Bools = self.distance(*self._goals(state)) <= self.tolerance
        return near

    @staticmethod
    def distance(achieved: Floats, desired: Floats) -> Floats:
        """Return the distance of two goals [m], shape (...), in double precision."""
        a, b = np.asarray(achieved, np.float64), np.asarray(desired, np.float64)
        length: Floats = np.sqrt(sum_of_squares(columns(a - b)))
        return length

"""The task of driving to a point on a plane."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.frames import gravity_direction, rotate_back, sum_of_squares
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State
from robots.task import Bools, Task, columns, observation_of

# Leaning by more than 60 degrees.
_TIPPED = -0.5


class DriveToGoal(Task):
    """Drive to a point that lies in any direction, forwards or backwards.

    The robot starts at the origin, heading along +x. ``memory`` holds the goal, the length of the
    way to where it counts as reached, how much of that is left, and the last action.

    Attributes:
        tolerance_m: Distance from the goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "progress": 5.0,
        "goal": 5.0,
        "time": 0.01,
        "change": 0.01,
    }
    observation_space = spaces.Box(
        np.array([0, -1, -1, -np.inf, -np.inf, -np.inf, -1, -1], np.float32),
        np.array([np.inf, 1, 1, np.inf, np.inf, np.inf, 1, 1], np.float32),
    )

    def __init__(
        self,
        n_joints: int,
        min_goal_m: float = 1.5,
        max_goal_m: float = 4.0,
        tolerance_m: float = 0.35,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set the distances.

        Args:
            n_joints: Joints of the robot.
            min_goal_m: Least distance of a goal from the start [m].
            max_goal_m: Greatest distance of a goal from the start [m].
            tolerance_m: Distance from the goal that counts as success [m].
            reward: Weights of the terms to change.

        Raises:
            ValueError: If the distances are not valid.
        """
        super().__init__(reward)
        if not 0 < tolerance_m < min_goal_m <= max_goal_m:
            raise ValueError(
                f"tolerance_m={tolerance_m}, min_goal_m={min_goal_m}, max_goal_m={max_goal_m} "
                "must be positive and rise, or a goal would be reached at the start. "
                "Set for example 0.35, 1.5 and 4."
            )
        self.tolerance_m = tolerance_m
        self._rest = np.zeros(n_joints)
        self._goal_range_m = (min_goal_m, max_goal_m)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw the distance and the direction of the goal, each uniform."""
        distance = rng.uniform(*self._goal_range_m)
        direction = rng.uniform(-np.pi, np.pi)
        goal = distance * np.array([np.cos(direction), np.sin(direction)])
        memory = {"goal": goal, "way": np.array(distance - self.tolerance_m)}
        return InitialState(self._rest, self._rest, memory=memory)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the goal and the way, and renew the way that is left and the action."""
        kept = {name: state.memory[name] for name in ("goal", "way")}
        return {**kept, "way_left": self._way_left(_distance(state)), "action": action}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        goal = ("goal distance", "cos goal", "sin goal")
        return (
            *goal,
            "speed ahead",
            "speed left",
            "turning rate",
            "last action 1",
            "last action 2",
        )

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return where the goal is, the motion, and the last action, in the robot's frame.

        Returns:
            Distance of the goal [m], cosine and sine of its direction (0 ahead, positive to the
            left), velocity ahead and to the left [m/s], turning rate [rad/s] and the last action,
            shape (..., 8).
        """
        orientation = columns(state.base_orientation)
        x, y = _to_goal(state)
        ahead, left, _ = rotate_back(orientation, [x, y, 0.0 * x])
        length = np.maximum(np.sqrt(ahead * ahead + left * left), 1e-9)
        velocity, turning = state.base_motion
        return observation_of(
            np.sqrt(x * x + y * y),
            ahead / length,
            left / length,
            velocity[0],
            velocity[1],
            turning[2],
            *columns(state.memory["action"]),
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``progress``: the share of the way made in this step, which adds up to 1 at the goal;
        ``goal``: 1 there; ``time``: -1; ``change``: minus the squared change of the action.
        """
        distance = _distance(state)
        return {
            "progress": (state.memory["way_left"] - self._way_left(distance)) / state.memory["way"],
            "goal": 1.0 * (distance <= self.tolerance_m),
            "time": -1.0,
            "change": -sum_of_squares(columns(action - state.memory["action"])),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the goal is reached and whether the robot tipped over, each (...)."""
        down = gravity_direction(columns(state.base_orientation))[2]
        return {"goal_reached": _distance(state) <= self.tolerance_m, "tipped_over": down > _TIPPED}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the goal is reached."""
        del survived
        near: Bools = _distance(state) <= self.tolerance_m
        return near

    def _way_left(self, distance: Any) -> Any:
        return np.maximum(distance - self.tolerance_m, 0.0)


def _to_goal(state: State) -> list[Any]:
    """Return the horizontal vector from the robot to the goal, world frame [m]."""
    goal, here = columns(state.memory["goal"]), columns(state.base_position)
    return [goal[0] - here[0], goal[1] - here[1]]


def _distance(state: State) -> Any:
    """Return the horizontal distance of the goal [m]."""
    x, y = _to_goal(state)
    return np.sqrt(x * x + y * y)

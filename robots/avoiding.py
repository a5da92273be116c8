"""Driving to a point between posts, which a range sensor sees: an option of the wheeled robots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.drive_to_goal import DriveToGoal
from robots.frames import rotate_back
from robots.ranges import RangeSensor
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State
from robots.task import Bools, columns
from robots.world import ObjectSpec

N_RAYS = 32
RANGE_M = 4.0
RADIUS_M, HEIGHT_M = 0.2, 1.0
ASIDE_M = 1.0
"""Greatest distance of an obstacle from the straight way to the goal."""
MARGIN_M = 0.3
"""What is left free of obstacles before the robot at the start, and around it at the goal."""
TOUCH_M = 0.02
"""Distance at which an obstacle counts as touched; physics leaves a little between bodies."""


@dataclass(frozen=True)
class Footprint:
    """The rectangle that a robot takes up on the ground, in the frame of its base."""

    ahead_m: float
    """How far it reaches ahead of the base."""
    behind_m: float
    """How far it reaches behind it."""
    half_width_m: float
    """How far it reaches to each side."""
    sensor_height_m: float
    """Height above the base at which rays meet no part of the robot."""

    @property
    def range_sensor(self) -> RangeSensor:
        """Rays all around, from above the middle of the robot."""
        middle = 0.5 * (self.ahead_m - self.behind_m)
        place = (middle, 0.0, self.sensor_height_m)
        return RangeSensor(N_RAYS, max_m=RANGE_M, view_rad=2.0 * pi, position=place)


def posts(count: int) -> tuple[ObjectSpec, ...]:
    """Return upright cylinders, which episodes put elsewhere."""
    return tuple(
        ObjectSpec(
            "cylinder",
            (RADIUS_M, HEIGHT_M, 0.0),
            mass_kg=0.0,
            position=(3.0 + number, 0.0, 0.5 * HEIGHT_M),
            colour=(0.78, 0.33, 0.24, 1.0),
        )
        for number in range(count)
    )


class DriveBetweenPosts(DriveToGoal):
    """Drive to a point, and touch none of the posts on the way; a touch ends the episode.

    ``memory`` also holds where the posts are, x and y of one after the other.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        **DriveToGoal.reward_weights,
        "touch": 5.0,
    }

    def __init__(
        self,
        n_posts: int,
        footprint: Footprint,
        n_joints: int,
        min_goal_m: float,
        max_goal_m: float,
        tolerance_m: float,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set the posts and the robot; the rest is that of ``DriveToGoal``.

        Raises:
            ValueError: If there is no room for posts between the start and the nearest goal, or
                their number is negative.
        """
        super().__init__(n_joints, min_goal_m, max_goal_m, tolerance_m, reward)
        if n_posts < 1:
            raise ValueError(f"obstacles={n_posts} must be at least 0. Set for example 5.")
        self.n_posts = n_posts
        self._footprint = footprint
        reach = max(footprint.ahead_m, footprint.behind_m)
        self._clear_m = reach + RADIUS_M + MARGIN_M
        if 2.0 * self._clear_m > min_goal_m:
            raise ValueError(
                f"min_goal_m={min_goal_m} leaves no room for obstacles, which are kept "
                f"{self._clear_m:.3g} m from the start and from the goal. Set at least "
                f"min_goal_m={2.0 * self._clear_m:.3g}, or obstacles=0."
            )
        low, high = self.observation_space.low, self.observation_space.high
        zeros, ones = np.zeros(N_RAYS, np.float32), np.ones(N_RAYS, np.float32)
        self.observation_space = spaces.Box(
            np.concatenate([low, zeros]), np.concatenate([high, ones])
        )

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw a goal, then the posts along the way to it and to either side of it."""
        start = super().sample_initial_state(rng)
        goal = start.memory["goal"]
        distance = np.sqrt(goal[0] * goal[0] + goal[1] * goal[1])
        ahead = goal / distance
        left = np.array([-ahead[1], ahead[0]])
        along = rng.uniform(self._clear_m, distance - self._clear_m, self.n_posts)
        aside = rng.uniform(-ASIDE_M, ASIDE_M, self.n_posts)
        places = along[:, None] * ahead + aside[:, None] * left
        heights = np.full((self.n_posts, 1), 0.5 * HEIGHT_M)
        return start._replace(
            obstacle_position=np.concatenate([places, heights], axis=1),
            memory={**start.memory, "posts": places.ravel()},
        )

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the posts too."""
        return {**super().remember(state, action), "posts": state.memory["posts"]}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        angles = np.degrees(self._footprint.range_sensor.angles_rad)
        rays = (f"nearness at {angle:.0f} degrees" for angle in angles)
        return (*super().observation_names(joints), *rays)

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return that of ``DriveToGoal``, and how near the next body is along each ray.

        Returns:
            0 where there is none within ``RANGE_M``, 1 at the sensor; shape (..., 8 + 32).
        """
        nearness = (1.0 - state.ranges / RANGE_M).astype(np.float32)
        return np.concatenate([super().observation(state), nearness], axis=-1)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms of ``DriveToGoal`` and ``touch``: -1 in the step that touches a post."""
        return {**super().reward_terms(state, action), "touch": -1.0 * self.touches(state)}

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether a post is touched, and the ends of ``DriveToGoal``, each (...)."""
        return {"touched": self.touches(state), **super().terminations(state)}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the goal is reached and no post touched."""
        reached: Bools = super().success(state, survived) & ~self.touches(state)
        return reached

    def touches(self, state: State) -> Any:
        """Return whether the robot's rectangle touches a post, shape (...)."""
        places, here = columns(state.memory["posts"]), columns(state.base_position)
        orientation, print_ = columns(state.base_orientation), self._footprint
        touched: Any = False
        for x, y in zip(places[::2], places[1::2], strict=True):
            to_x, to_y = x - here[0], y - here[1]
            ahead, left, _ = rotate_back(orientation, [to_x, to_y, 0.0 * to_x])
            beyond = np.maximum(np.maximum(ahead - print_.ahead_m, -ahead - print_.behind_m), 0.0)
            beside = np.maximum(abs(left) - print_.half_width_m, 0.0)
            gap = np.sqrt(beyond * beyond + beside * beside) - RADIUS_M
            touched = touched | (gap <= TOUCH_M)
        return touched

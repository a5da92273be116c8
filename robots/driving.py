"""Driving to a point on a plane: the task of the wheeled robots, and what their worlds share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import gravity_direction, rotate_back
from robots.rendering import add_cylinder, move
from robots.robot import InitialState, RobotSpec
from robots.sensors import Floats, State
from robots.task import Bools, Task, columns, observation_of
from robots.world import WorldSpec

START_POSITION = (0.0, 0.0, 0.01)
"""World position of the base at the start [m]: just clear of the ground."""

# Leaning by more than 60 degrees.
_TIPPED = -0.5
_DISC, _POST = (0.30, 0.75, 0.45, 1.0), (0.13, 0.50, 0.30, 1.0)
_POST_M = 0.6


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
        *,
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
            ValueError: If the distances are not in order.
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

    def remember(self, state: State, action: Floats) -> dict[str, Any]:
        """Keep the goal and the way, and renew the way that is left and the action."""
        memory = state.memory
        return {
            "goal": memory["goal"],
            "way": memory["way"],
            "way_left": self._way_left(_distance(state)),
            "action": action,
        }

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
        velocity = rotate_back(orientation, columns(state.base_velocity))
        turning = rotate_back(orientation, columns(state.base_angular_velocity))
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
        """Return the terms before weighting.

        Args:
            state: State after the step.
            action: In [-1, 1], shape (..., 2).

        Returns:
            ``progress`` the share of the way made in this step, which adds up to 1 at the goal;
            ``goal`` 1 there; ``time`` -1; ``change`` minus the squared change of the action.
        """
        distance = _distance(state)
        change: Any = 0.0
        for now, before in zip(columns(action), columns(state.memory["action"]), strict=True):
            change = change + (now - before) * (now - before)
        return {
            "progress": (state.memory["way_left"] - self._way_left(distance)) / state.memory["way"],
            "goal": 1.0 * (distance <= self.tolerance_m),
            "time": -1.0,
            "change": -change,
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
        """Return the length of the way that is left, by the distance of the goal [m]."""
        return np.maximum(distance - self.tolerance_m, 0.0)


class DrivingEnv(BaseRobotEnv):
    """A wheeled robot on a plane, with its goal marked.

    The camera looks from behind the robot towards the goal, so that both are seen.
    """

    task: DriveToGoal
    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.1), distance_m=4.0, pitch_deg=-32.0, fov_deg=45.0
    )

    def __init__(
        self, robot: RobotSpec, task: DriveToGoal, world: WorldSpec, **options: Unpack[EnvOptions]
    ) -> None:
        """Build the world.

        Args:
            robot: The robot to load.
            task: Where to drive.
            world: The ground, and how time passes.
            options: See ``BaseRobotEnv``; ``episode_s`` is 15 by default.
        """
        options.setdefault("episode_s", 15.0)
        super().__init__(robot, task, world, **options)

    def current_camera(self) -> Camera:
        """Return the camera, turned towards the goal and aimed at a point on the way to it."""
        camera = super().current_camera()
        goal = self.state.memory.get("goal")
        if goal is None:
            return camera
        x, y = (goal - self.state.base_position[:2]).tolist()
        # At most 1 m, so that a robot that strays far from its goal stays in the image.
        share = min(0.3, 1.0 / max(float(np.hypot(x, y)), 1e-9))
        across, along, height = camera.target
        target = (across + share * x, along + share * y, height)
        return replace(camera, target=target, yaw_deg=float(np.degrees(np.arctan2(y, x))) - 90.0)

    def build_scenery(self) -> None:
        """Add the mark of the goal: a disc of the size that counts as success, and a post."""
        disc = add_cylinder(self.simulation, self.task.tolerance_m, 0.01, (0.0, 0.0, 0.0), _DISC)
        post = add_cylinder(self.simulation, 0.03, _POST_M, (0.0, 0.0, 0.0), _POST)
        self._marks = {disc: 0.005, post: _POST_M / 2}

    def update_scenery(self) -> None:
        """Put the mark where the goal is."""
        goal = self.state.memory.get("goal")
        if goal is not None:
            for mark, height in self._marks.items():
                move(self.simulation, mark, (*goal.tolist(), height))


def _to_goal(state: State) -> list[Any]:
    """Return the horizontal vector from the robot to the goal, world frame [m]."""
    goal, here = columns(state.memory["goal"]), columns(state.base_position)
    return [goal[0] - here[0], goal[1] - here[1]]


def _distance(state: State) -> Any:
    """Return the horizontal distance of the goal [m]."""
    x, y = _to_goal(state)
    return np.sqrt(x * x + y * y)

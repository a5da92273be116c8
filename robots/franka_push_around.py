"""Franka push around: an arm goes round a cube and pushes it to a point on any side."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import columns, sum_of_squares, yaw
from robots.franka import panda, show_goal_square, show_table, table_with_cube
from robots.franka_push import (
    CENTRE,
    CUBE_HALF_EDGE_M,
    PUSH_DISTANCE_M,
    READY,
    WORKSPACE,
    FrankaPushEnv,
    sample_push,
)
from robots.rendering import move
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State
from robots.task import Bools, Task, observation_of

AROUND_M = 0.07
"""Distance from the cube's centre at which the hand goes round it."""
AT_REST_M_S = 0.05
"""Speed below which the cube counts as at rest."""


class PushAroundTask(Task):
    """Push a cube to a point in any direction; an episode ends with the cube at rest there.

    ``memory`` holds the goal, the length of the way of the cube to where it counts as reached, how
    much of that and of the hand's way to the far side of the cube is left, and the last action.

    Attributes:
        tolerance_m: Distance of the cube from its goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "push": 5.0,
        "approach": 5.0,
        "goal": 5.0,
        "time": 0.02,
        "change": 0.01,
    }
    observation_space = spaces.Box(-np.inf, np.inf, (18,), np.float32)

    def __init__(self, reward: Mapping[str, float] | None, tolerance_m: float) -> None:
        """Set weights and tolerance.

        Raises:
            ValueError: If the tolerance lets a goal be reached at the start, or the reward names an
                unknown term.
        """
        super().__init__(reward)
        if not 0 < tolerance_m < PUSH_DISTANCE_M[0]:
            raise ValueError(
                f"tolerance_m={tolerance_m} must be positive and below the nearest goal, "
                f"{PUSH_DISTANCE_M[0]} m. Set for example 0.03."
            )
        self.tolerance_m = tolerance_m

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw a place for the cube, and distance and direction of the goal from it [m]."""
        initial, distance = sample_push(rng, np.pi)
        way = np.array(distance - self.tolerance_m)
        return initial._replace(memory={**initial.memory, "way": way})

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the goal and the way, and renew what is left of the two ways and the action."""
        kept = {name: state.memory[name] for name in ("goal", "way")}
        left = {"way_left": self._way_left(state), "round_left": _way_round(state)}
        return {**kept, **left, "action": action}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        hand = [f"gripper {x}" for x in "xyz"] + [f"gripper velocity {x}" for x in "xyz"]
        cube = [f"cube {name} {x}" for name in ("from gripper", "velocity") for x in "xy"]
        goal = ["goal distance", "cos goal", "sin goal", "way round", "cos round", "sin round"]
        return (*hand, *cube, *goal, "sin 4 yaw", "cos 4 yaw")

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return the hand, the cube as it sees it, and where the cube must go.

        Returns:
            Position [m] and velocity [m/s] of the gripper, position of the cube relative to it in x
            and y [m], velocity of the cube in x and y [m/s], distance [m] and direction (cosine and
            sine) of the goal as the cube sees it, way of the hand round the cube to the side that
            is opposite to the goal [m], cosine and sine of the angle between that side and the hand
            as the cube sees them, sine and cosine of four times the cube's yaw; shape (..., 18).
        """
        cube_velocity = columns(state.object_velocity[..., 0, :])
        turn = 4.0 * yaw(columns(state.object_orientation[..., 0, :]))
        x, y, distance = _to_goal(state)
        cosine, sine, _ = _angle_round(state)
        return observation_of(
            *columns(state.link_position[..., 0, :]),
            *columns(state.link_velocity[..., 0, :]),
            *(-x for x in _hand_from_cube(state)),
            *cube_velocity[:2],
            distance,
            x / distance,
            y / distance,
            _way_round(state),
            cosine,
            sine,
            np.sin(turn),
            np.cos(turn),
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``push``: the share of the cube's way made in this step, which adds up to 1 at the goal;
        ``approach``: what the hand came nearer to the side of the cube that is opposite to the
        goal, on the shortest way round the cube [m]; ``goal``: 1 with the cube at rest at the goal;
        ``time``: -1; ``change``: minus the squared change of the action.
        """
        memory = state.memory
        return {
            "push": (memory["way_left"] - self._way_left(state)) / memory["way"],
            "approach": memory["round_left"] - _way_round(state),
            "goal": 1.0 * self._is_reached(state),
            "time": -1.0,
            "change": -sum_of_squares(columns(action - memory["action"])),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the cube is at rest at its goal, shape (...)."""
        return {"goal_reached": self._is_reached(state)}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the cube is at rest at its goal."""
        del survived
        return self._is_reached(state)

    def _is_reached(self, state: State) -> Bools:
        speed = np.sqrt(sum_of_squares(columns(state.object_velocity[..., 0, :])))
        reached: Bools = (_to_goal(state)[2] <= self.tolerance_m) & (speed < AT_REST_M_S)
        return reached

    def _way_left(self, state: State) -> Any:
        return np.maximum(_to_goal(state)[2] - self.tolerance_m, 0.0)


def _to_goal(state: State) -> tuple[Any, Any, Any]:
    """Return the way from the cube to its goal in x and y, and its length above 0 [m]."""
    goal, cube = columns(state.memory["goal"]), columns(state.object_position[..., 0, :])
    x, y = goal[0] - cube[0], goal[1] - cube[1]
    return x, y, np.maximum(np.sqrt(x * x + y * y), 1e-9)


def _hand_from_cube(state: State) -> tuple[Any, Any]:
    """Return the position of the hand relative to the cube, x and y [m]."""
    hand = columns(state.link_position[..., 0, :])
    cube = columns(state.object_position[..., 0, :])
    return hand[0] - cube[0], hand[1] - cube[1]


def _angle_round(state: State) -> tuple[Any, Any, Any]:
    """Return the angle at the cube from the side opposite to the goal to the hand.

    Returns:
        Its cosine and sine, and the distance of the hand from the cube above 0 [m].
    """
    goal_x, goal_y, to_goal = _to_goal(state)
    x, y = _hand_from_cube(state)
    distance = np.maximum(np.sqrt(x * x + y * y), 1e-9)
    behind_x, behind_y, x, y = -goal_x / to_goal, -goal_y / to_goal, x / distance, y / distance
    return behind_x * x + behind_y * y, behind_x * y - behind_y * x, distance


def _way_round(state: State) -> Any:
    """Return the shortest way of the hand to the cube's side opposite to the goal [m].

    That side is the point at ``AROUND_M`` from the cube's centre. The way leads round the circle of
    that radius: straight where the circle is not between, otherwise along a tangent and an arc.
    """
    cosine, sine, distance = _angle_round(state)
    angle, outside = np.abs(np.arctan2(sine, cosine)), np.maximum(distance, AROUND_M)
    tangent = np.sqrt(outside * outside - AROUND_M * AROUND_M)
    hidden = angle - np.arctan2(tangent, AROUND_M)
    across = outside * outside + AROUND_M * AROUND_M - 2.0 * outside * AROUND_M * cosine
    straight = np.sqrt(np.maximum(across, 0.0))
    return np.where(hidden > 0.0, tangent + AROUND_M * hidden, straight)


class FrankaPushAroundEnv(BaseRobotEnv):
    """Cube pushing to all sides at 20 Hz on PyBullet's ``franka_panda/panda.urdf``."""

    task: PushAroundTask
    camera: ClassVar[Camera] = FrankaPushEnv.camera

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        tolerance_m: float = 0.03,
        step_m: float = 0.05,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of the terms of ``PushAroundTask`` to change.
            tolerance_m: Distance of the cube from its goal that counts as success [m].
            step_m: Displacement of the gripper that the action 1 asks for [m].
            options: See ``BaseRobotEnv``; ``episode_s`` is 4 by default.
        """
        options.setdefault("episode_s", 4.0)
        super().__init__(
            panda(READY, WORKSPACE, step_m),
            PushAroundTask(reward, tolerance_m),
            table_with_cube(CENTRE, CUBE_HALF_EDGE_M, mass_kg=0.5, friction=0.5),
            **options,
        )

    def build_scenery(self) -> None:
        """Lay a table top under the arm and a square for the goal, within the tolerance."""
        show_table(self.simulation)
        self._mark = show_goal_square(self.simulation, self.task.tolerance_m, CENTRE)

    def update_scenery(self) -> None:
        """Put the square where the goal is."""
        if "goal" in self.state.memory:
            x, y = self.state.memory["goal"].tolist()
            move(self.simulation, self._mark, (x, y, 0.006))

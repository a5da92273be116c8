"""Franka push: an arm pushes a cube over a table to a point, for hindsight replay."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import EnvOptions
from robots.frames import columns, yaw
from robots.franka import panda, show_goal_square, show_table, table_with_cube
from robots.goal_env import GoalRobotEnv
from robots.rendering import move
from robots.robot import InitialState
from robots.sensors import Floats, State
from robots.task import GoalTask, observation_of

CUBE_HALF_EDGE_M = 0.025
CENTRE = (0.48, 0.0)
"""Middle of the square in which the cube starts, world frame [m]."""
START_HALF_WIDTH_M = 0.05
"""Half the edge of that square."""
PUSH_DISTANCE_M = (0.08, 0.18)
"""Shortest and longest distance from the cube to its goal."""
WORKSPACE = ((0.28, -0.25, 0.02), (0.72, 0.25, 0.04))
"""Lowest and highest position of the point between the fingertips, world frame [m]."""
READY = (0.0, 0.266, 0.0, -2.7785, 0.0, 3.0445, 0.7853, 0.0, 0.0)
"""Joints with that point at (0.37, 0, 0.03), hand down and fingers closed [rad and m]."""


def sample_push(rng: np.random.Generator, spread: float) -> tuple[InitialState, float]:
    """Draw a place for the cube, and distance and direction of the goal from it.

    Args:
        rng: Generator of the world.
        spread: Greatest angle of the direction from the x axis, to both sides [rad].

    Returns:
        The state, with the goal in its memory, and the distance [m].
    """
    cube = np.array(CENTRE) + rng.uniform(-START_HALF_WIDTH_M, START_HALF_WIDTH_M, 2)
    distance, direction = rng.uniform(*PUSH_DISTANCE_M), rng.uniform(-spread, spread)
    goal = cube + distance * np.array([np.cos(direction), np.sin(direction)])
    return InitialState(
        READY,
        np.zeros(len(READY)),
        object_position=np.array([[*cube, CUBE_HALF_EDGE_M]]),
        memory={"goal": goal},
    ), distance


class FrankaPushTask(GoalTask):
    """Push a cube to a point; a goal is where its centre should be, x and y [m].

    Success is the cube within ``tolerance`` of the goal when the episode ends.
    """

    def __init__(self, reward: Mapping[str, float] | None, tolerance: float, spread: float) -> None:
        """Set weights and tolerance, see ``GoalTask``, and the spread of the goals [rad]."""
        super().__init__(13, 2, tolerance=tolerance, reward=reward)
        self.spread = spread

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw a place for the cube, and a goal beyond it as the arm sees it [m]."""
        return sample_push(rng, self.spread)[0]

    def achieved_goal(self, state: State) -> Floats:
        """Return where the cube is, x and y [m], shape (..., 2)."""
        return state.object_position[..., 0, :2]

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of ``features``."""
        del joints
        gripper = [f"gripper {x}" for x in "xyz"] + [f"gripper velocity {x}" for x in "xyz"]
        cube = [f"cube from gripper {x}" for x in "xyz"] + ["cube velocity x", "cube velocity y"]
        return (*gripper, *cube, "sin 4 yaw", "cos 4 yaw")

    def features(self, state: State) -> NDArray[np.float32]:
        """Return the gripper, and the cube as the gripper sees it; shape (..., 13).

        Returns:
            Position [m] and velocity [m/s] of the gripper, position of the cube relative to it
            [m], velocity of the cube in x and y [m/s], sine and cosine of four times its yaw, of
            which a quarter turn changes nothing.
        """
        gripper = columns(state.link_position[..., 0, :])
        velocity = columns(state.link_velocity[..., 0, :])
        cube = columns(state.object_position[..., 0, :])
        cube_velocity = columns(state.object_velocity[..., 0, :])
        turn = 4.0 * yaw(columns(state.object_orientation[..., 0, :]))
        return observation_of(
            *gripper,
            *velocity,
            *(of_cube - of_gripper for of_cube, of_gripper in zip(cube, gripper, strict=True)),
            *cube_velocity[:2],
            np.sin(turn),
            np.cos(turn),
        )


class FrankaPushEnv(GoalRobotEnv):
    """Cube pushing at 20 Hz on PyBullet's ``franka_panda/panda.urdf``."""

    camera: ClassVar[Camera] = Camera(
        target=(0.34, 0.0, 0.26), distance_m=1.7, yaw_deg=62.0, pitch_deg=-26.0, fov_deg=36.0
    )

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        tolerance_m: float = 0.05,
        step_m: float = 0.05,
        spread_rad: float = np.pi / 3,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of ``reached`` and ``distance`` to change.
            tolerance_m: Distance of the cube from its goal that counts as success [m].
            step_m: Displacement of the gripper that the action 1 asks for [m].
            spread_rad: Largest angle between the way to the goal and straight away from the arm
                [rad]; pi for goals all around, for which the hand must walk round the cube.
            options: See ``BaseRobotEnv``; ``episode_s`` is 2 by default.
        """
        options.setdefault("episode_s", 2.0)
        super().__init__(
            panda(READY, WORKSPACE, step_m, max_velocity=None),
            FrankaPushTask(reward, tolerance_m, spread_rad),
            table_with_cube(CENTRE, CUBE_HALF_EDGE_M, mass_kg=0.5, friction=0.5),
            **options,
        )

    def build_scenery(self) -> None:
        """Lay a table top under the arm and a square for the goal.

        The square lies within the tolerance: a cube whose centre is on it has reached its goal.
        """
        show_table(self.simulation)
        self._mark = show_goal_square(self.simulation, self.task.tolerance, CENTRE)

    def update_scenery(self) -> None:
        """Put the square where the goal is."""
        if "goal" in self.state.memory:
            x, y = self.state.memory["goal"].tolist()
            move(self.simulation, self._mark, (x, y, 0.006))

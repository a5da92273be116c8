"""Franka lift: an arm grasps a cube, lifts it to a point in the air and holds it there."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import columns, sum_of_squares, yaw
from robots.franka import gripping, panda, show_table, table_with_cube
from robots.rendering import add_sphere, move
from robots.rewards import tolerance
from robots.robot import InitialState
from robots.sensors import Floats, State
from robots.task import Bools, Task, observation_of

CUBE_HALF_EDGE_M = 0.02
CENTRE = (0.48, 0.0)
"""Middle of the squares in which cube and goal lie, world frame [m]."""
START_HALF_WIDTH_M = 0.08
"""Half the edge of the square in which the cube starts."""
MAX_YAW_RAD = 0.3
"""Largest turn of the cube at the start, to either side; the hand itself does not turn."""
GOAL_HALF_WIDTH_M = 0.1
"""Half the edge of the square above which the goal lies."""
GOAL_HEIGHT_M = (0.12, 0.3)
"""Lowest and highest goal."""
WORKSPACE = ((0.3, -0.25, 0.02), (0.68, 0.25, 0.4))
"""Lowest and highest position of the point between the fingertips, world frame [m]."""
READY = (0.0, 0.0279, 0.0, -2.5649, 0.0, 2.5928, 0.7854, 0.04, 0.04)
"""Joints with that point at (0.45, 0, 0.15), hand down and fingers open [rad and m]."""
GRASP_M = 0.03
"""Distance of the cube from that point up to which it counts as grasped."""

LIFTED_M = 0.05
"""Height above the table at which the cube counts as lifted."""


class FrankaLiftTask(Task):
    """Grasp a cube, and bring it to a point in the air.

    Success is the cube within ``tolerance_m`` of the goal when the episode ends.

    Attributes:
        tolerance_m: Distance of the cube from its goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "reach": 0.1,
        "grasp": 0.1,
        "lift": 0.2,
        "carry": 0.3,
        "at_goal": 0.3,
        "action_change": 0.005,
    }
    observation_space = spaces.Box(-np.inf, np.inf, (22,), np.float32)

    def __init__(self, reward: Mapping[str, float] | None, tolerance_m: float) -> None:
        """Set weights and tolerance.

        Raises:
            ValueError: If the tolerance is not positive, or the reward names an unknown term.
        """
        super().__init__(reward)
        if not tolerance_m > 0:
            raise ValueError(f"tolerance_m={tolerance_m} must be positive. Set for example 0.04.")
        self.tolerance_m = tolerance_m

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw a place and a turn for the cube, and a goal above the table [m]."""
        cube = np.array(CENTRE) + rng.uniform(-START_HALF_WIDTH_M, START_HALF_WIDTH_M, 2)
        half_turn = 0.5 * rng.uniform(-MAX_YAW_RAD, MAX_YAW_RAD)
        goal = np.array(CENTRE) + rng.uniform(-GOAL_HALF_WIDTH_M, GOAL_HALF_WIDTH_M, 2)
        return InitialState(
            READY,
            np.zeros(len(READY)),
            object_position=np.array([[*cube, CUBE_HALF_EDGE_M]]),
            object_orientation=np.array([[0.0, 0.0, np.sin(half_turn), np.cos(half_turn)]]),
            memory={"goal": np.array([*goal, rng.uniform(*GOAL_HEIGHT_M)])},
        )

    def remember(self, state: State, action: Floats) -> Mapping[str, Any]:
        """Keep the goal and the action."""
        return {"goal": state.memory["goal"], "action": action}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        vectors = ("gripper", "gripper velocity", "cube from gripper", "cube velocity")
        gripper = ("left finger", "right finger", "left touch", "right touch")
        turn = ("sin 4 yaw", "cos 4 yaw")
        places = [f"{name} {axis}" for name in vectors for axis in "xyz"]
        return (*places, *gripper, *turn, *(f"goal from cube {axis}" for axis in "xyz"), "height")

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return the gripper, the cube as it sees it, and the goal as the cube does.

        Returns:
            Position [m] and velocity [m/s] of the gripper, position of the cube relative to it
            [m], velocity of the cube [m/s], openings [m] and touch of both fingers, sine and
            cosine of four times the cube's yaw, position of the goal relative to the cube [m] and
            height of the cube above the table [m]; shape (..., 22).
        """
        goal, cube = columns(state.memory["goal"]), columns(state.object_position[..., 0, :])
        turn = 4.0 * yaw(columns(state.object_orientation[..., 0, :]))
        return observation_of(
            *columns(state.link_position[..., 0, :]),
            *columns(state.link_velocity[..., 0, :]),
            *_cube_from_gripper(state),
            *columns(state.object_velocity[..., 0, :]),
            *columns(state.joint_position)[7:],
            *columns(state.contact),
            np.sin(turn),
            np.cos(turn),
            *(there - here for there, here in zip(goal, cube, strict=True)),
            cube[2] - CUBE_HALF_EDGE_M,
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``reach``: 1 with the cube between the fingertips, 0.1 at 20 cm from it; ``grasp``: 1 while
        both fingers touch it there, 0 else; ``lift``: while grasped, 0 on the table, rising evenly
        to 1 at 5 cm above it; ``carry``: times ``lift``, 1 at the goal, falling evenly to 0 at 40
        cm from it; ``at_goal``: times ``lift``, 1 at the goal and 0.1 at 10 cm from it;
        ``action_change``: minus the squared change of the action.
        """
        to_cube, to_goal = np.sqrt(sum_of_squares(_cube_from_gripper(state))), _to_goal(state)
        left, right = columns(state.contact)
        grasp = left * right * (to_cube < GRASP_M)
        height = columns(state.object_position[..., 0, :])[2] - CUBE_HALF_EDGE_M
        lift = grasp * np.minimum(np.maximum(height / LIFTED_M, 0.0), 1.0)
        return {
            "reach": tolerance(to_cube, margin=0.2),
            "grasp": grasp,
            "lift": lift,
            "carry": lift * tolerance(to_goal, margin=0.4, value_at_margin=0.0, slope="linear"),
            "at_goal": lift * tolerance(to_goal, margin=0.1),
            "action_change": -sum_of_squares(columns(action - state.memory["action"])),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return nothing: every episode runs to its time limit."""
        del state
        return {}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the cube is at its goal."""
        near: Bools = survived & (_to_goal(state) <= self.tolerance_m)
        return near


def _cube_from_gripper(state: State) -> list[Any]:
    """Return the position of the cube relative to the point between the fingertips [m]."""
    gripper = columns(state.link_position[..., 0, :])
    cube = columns(state.object_position[..., 0, :])
    return [there - here for there, here in zip(cube, gripper, strict=True)]


def _to_goal(state: State) -> Any:
    """Return the distance of the cube from its goal [m], shape (...)."""
    goal, cube = columns(state.memory["goal"]), columns(state.object_position[..., 0, :])
    return np.sqrt(sum_of_squares([a - b for a, b in zip(goal, cube, strict=True)]))


class FrankaLiftEnv(BaseRobotEnv):
    """Grasping and lifting at 20 Hz with PyBullet's ``franka_panda/panda.urdf``."""

    task: FrankaLiftTask
    camera: ClassVar[Camera] = Camera(
        target=(0.36, 0.0, 0.28), distance_m=1.7, yaw_deg=62.0, pitch_deg=-22.0, fov_deg=36.0
    )

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        tolerance_m: float = 0.04,
        step_m: float = 0.05,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of the terms of ``FrankaLiftTask`` to change.
            tolerance_m: Distance of the cube from its goal that counts as success [m].
            step_m: Displacement of the gripper that the action 1 asks for [m].
            options: See ``BaseRobotEnv``; ``episode_s`` is 4 by default.
        """
        options.setdefault("episode_s", 4.0)
        super().__init__(
            gripping(panda(READY, WORKSPACE, step_m)),
            FrankaLiftTask(reward, tolerance_m),
            table_with_cube(CENTRE, CUBE_HALF_EDGE_M, mass_kg=0.2, friction=1.0),
            **options,
        )

    def build_scenery(self) -> None:
        """Lay a table top under the arm, and make a ball of the tolerance's size for the goal."""
        show_table(self.simulation)
        self._mark = add_sphere(
            self.simulation, self.task.tolerance_m, (*CENTRE, 0.2), (0.25, 0.68, 0.38, 0.5)
        )

    def update_scenery(self) -> None:
        """Put the ball where the goal is."""
        if "goal" in self.state.memory:
            x, y, z = self.state.memory["goal"].tolist()
            move(self.simulation, self._mark, (x, y, z))

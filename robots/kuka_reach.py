"""Kuka reach: an arm brings its flange to a point."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import EnvOptions
from robots.goal_env import GoalRobotEnv
from robots.rendering import add_floor, add_sphere, move
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, SensorSpec, State
from robots.task import GoalTask, observation_of
from robots.world import WorldSpec

REST = (0.0, 0.5, 0.0, -1.2, 0.0, 0.9, 0.0)
"""The arm bent forward [rad]; its flange is then at (0.60, 0, 0.61)."""
TORQUES_N_M = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)
"""Greatest torque of each joint of the LBR iiwa 14 R820, from KUKA's brochure."""
SPEEDS_RAD_S = tuple(float(speed) for speed in np.radians((85, 85, 100, 75, 130, 135, 135)))
"""Greatest velocity of each, from the same table."""
START_NOISE_RAD = 0.1
GOAL_RADIUS_M = (0.4, 0.7)
"""Nearest and farthest goal from the vertical axis of the base."""
GOAL_ANGLE_RAD = 1.2
"""Farthest goal to either side of straight ahead."""
GOAL_HEIGHT_M = (0.2, 0.7)
"""Lowest and highest goal."""


class KukaReachTask(GoalTask):
    """Bring the flange to a point and keep it there; a goal is its position [m].

    To the terms of ``GoalTask`` comes ``near``, which is steep where the distance is short. The
    weights ``{"reached": 1, "distance": 0, "near": 0}`` make the sparse reward of hindsight replay.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"reached": 0.0, "distance": 1.0, "near": 1.0}

    def __init__(self, reward: Mapping[str, float] | None, tolerance_m: float) -> None:
        """Set weights and tolerance; see ``GoalTask``."""
        super().__init__(2 * len(REST), 3, tolerance=tolerance_m, reward=reward)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw joints near the rest position, and a goal in a part of a hollow cylinder [m]."""
        noise = rng.uniform(-START_NOISE_RAD, START_NOISE_RAD, len(REST))
        radius = rng.uniform(*GOAL_RADIUS_M)
        angle = rng.uniform(-GOAL_ANGLE_RAD, GOAL_ANGLE_RAD)
        height = rng.uniform(*GOAL_HEIGHT_M)
        goal = np.array([radius * np.cos(angle), radius * np.sin(angle), height])
        return InitialState(np.array(REST) + noise, np.zeros(len(REST)), memory={"goal": goal})

    def achieved_goal(self, state: State) -> Floats:
        """Return where the flange is [m], shape (..., 3)."""
        return state.link_position[..., 0, :]

    def goal_terms(self, achieved: Floats, desired: Floats) -> dict[str, Any]:
        """Return the terms of ``GoalTask``, and ``near``: 0 at the goal, -0.9 at 10 cm from it."""
        terms = super().goal_terms(achieved, desired)
        return {**terms, "near": tolerance(terms["distance"], margin=0.1) - 1.0}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of ``features``."""
        return (*joints, *(f"{name} velocity" for name in joints))

    def features(self, state: State) -> NDArray[np.float32]:
        """Return the positions [rad] and velocities [rad/s] of the joints, shape (..., 14)."""
        position, velocity = state.joints
        return observation_of(*position, *velocity)


class KukaReachEnv(GoalRobotEnv):
    """Reaching at 20 Hz with PyBullet's ``kuka_iiwa/model.urdf``."""

    camera: ClassVar[Camera] = Camera(
        target=(0.22, 0.0, 0.45), distance_m=2.3, yaw_deg=65.0, pitch_deg=-18.0, fov_deg=36.0
    )

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        tolerance_m: float = 0.05,
        step_rad: float = 0.1,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of ``reached``, ``distance`` and ``near`` to change.
            tolerance_m: Distance of the flange from the goal that counts as success [m].
            step_rad: Turn of a joint that the action 1 asks for [rad].
            options: See ``BaseRobotEnv``; ``episode_s`` is 2.5 by default.
        """
        options.setdefault("episode_s", 2.5)
        super().__init__(
            RobotSpec(
                urdf="kuka_iiwa/model.urdf",
                action_scale=step_rad,
                action_mode=ActionMode.DELTA_POSITION,
                rest_position=REST,
                max_force=TORQUES_N_M,
                max_velocity=SPEEDS_RAD_S,
                position_gain=0.2,
                sensors=SensorSpec(links="lbr_iiwa_link_7"),
            ),
            KukaReachTask(reward, tolerance_m),
            WorldSpec(time_step_s=1 / 120, substeps=6, solver_iterations=20),
            **options,
        )

    def build_scenery(self) -> None:
        """Lay a floor with a square on it, and make a ball of the tolerance's size for the goal."""
        add_floor(self.simulation, 0.0, 0.85)
        self._mark = add_sphere(
            self.simulation, self.task.tolerance, (0.6, 0.0, 0.6), (0.25, 0.68, 0.38, 0.8)
        )

    def update_scenery(self) -> None:
        """Put the ball where the goal is."""
        if "goal" in self.state.memory:
            x, y, z = self.state.memory["goal"].tolist()
            move(self.simulation, self._mark, (x, y, z))

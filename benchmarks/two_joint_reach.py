"""Two-joint reach: an arm of two links brings its tip to a point in its plane, for trials.

The robot is `TwoJointRobot_wo_fixedJoints.urdf` of pybullet_data, with links of 1 m.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.elementary import cos, sin
from robots.env import BaseRobotEnv, EnvOptions
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, State
from robots.task import Task, columns, observation_of
from robots.world import WorldSpec

TURN_RAD = 0.1  # Of a joint, that the action 1 asks for in a step
TORQUES_N_M = (60.0, 30.0)
FASTEST_RAD_S = 2.0
REACHED_M = 0.05


class TwoJointReach(Task):
    """Bring the tip to a point and keep it there."""

    reward_weights: ClassVar[Mapping[str, float]] = {"near": 0.5, "there": 0.5, "effort": 0.01}
    observation_space = spaces.Box(-np.inf, np.inf, (8,), np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw joints [rad] near the arm bent to one side, and a point in half a ring [m]."""
        joints = np.array([-0.5, 1.2]) + rng.uniform(-0.2, 0.2, 2)
        distance, angle = rng.uniform(0.8, 1.8), rng.uniform(-1.2, 1.2)
        goal = distance * np.array([np.cos(angle), np.sin(angle)])
        return InitialState(joints, np.zeros(2), memory={"goal": goal})

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return joints [rad], velocities [rad/s], goal and way to it [m], shape (..., 8)."""
        (first, second), (first_speed, second_speed) = state.joints
        goal_x, goal_y = columns(state.memory["goal"])
        x, y = _tip(state)
        return observation_of(
            *(first, second, first_speed, second_speed), *(goal_x, goal_y, goal_x - x, goal_y - y)
        )

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        speeds = [f"{name} velocity" for name in joints]
        return (*joints, *speeds, "goal x", "goal y", "way x", "way y")

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``near`` is 1 at the goal and 0 at 3 m, ``there`` 1 within 5 cm and 0.1 at 25 cm;
        ``effort`` is minus the squares of the action.
        """
        distance = _distance(state)
        first, second = columns(action)
        return {
            "near": tolerance(distance, margin=3.0, value_at_margin=0.0, slope="linear"),
            "there": tolerance(distance, (0.0, REACHED_M), margin=0.2),
            "effort": -(first * first + second * second),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return nothing: the time alone ends an episode."""
        del state
        return {}

    def success(self, state: State, truncated: Any) -> Any:
        """Return whether the tip is at the goal as the time is over, shape (...)."""
        return truncated & (_distance(state) <= REACHED_M)


def _tip(state: State) -> tuple[Any, Any]:
    (first, second), _ = state.joints
    both = first + second
    return cos(first) + cos(both), sin(first) + sin(both)


def _distance(state: State) -> Any:
    goal_x, goal_y = columns(state.memory["goal"])
    x, y = _tip(state)
    return np.hypot(goal_x - x, goal_y - y)


class TwoJointReachEnv(BaseRobotEnv):
    """Reaching at 20 Hz, in episodes of 2.5 s."""

    def __init__(
        self, *, reward: Mapping[str, float] | None = None, **options: Unpack[EnvOptions]
    ) -> None:
        """Build the environment."""
        options.setdefault("episode_s", 2.5)
        super().__init__(
            RobotSpec(
                urdf="TwoJointRobot_wo_fixedJoints.urdf",
                action_mode=ActionMode.DELTA_POSITION,
                action_scale=TURN_RAD,
                max_force=TORQUES_N_M,
                max_velocity=FASTEST_RAD_S,
                position_gain=0.2,
            ),
            TwoJointReach(reward),
            WorldSpec(time_step_s=1 / 120, substeps=6),
            **options,
        )


gymnasium.register("benchmarks/TwoJointReach-v0", entry_point=f"{__name__}:TwoJointReachEnv")

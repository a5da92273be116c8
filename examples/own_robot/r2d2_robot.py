"""R2D2 drives to a mark on the floor and looks at it.

The robot is PyBullet's own `r2d2.urdf`. This file was begun with

    rlzoo-plus new-robot r2d2_robot --urdf r2d2.urdf --mode velocity --forward y

and then got another task, actions for a whole side of wheels, and a mark on the floor.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import Components, columns, gravity_direction, rotate_back
from robots.rendering import add_cylinder, move
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, SensorSpec, State
from robots.task import Task, observation_of
from robots.world import WorldSpec

# In the order of the URDF; its gripper is left passive.
WHEELS = r"(right|left)_(front|back)_wheel_joint"
HEAD = "head_swivel"
# What each motor is told by the actions "ahead", "turn left" and "turn the head to the left". The
# wheels' axes point to the robot's right: turning them forward is a negative speed.
MIXING = (
    (-1.0, -1.0, 0.0),
    (-1.0, -1.0, 0.0),
    (-1.0, 1.0, 0.0),
    (-1.0, 1.0, 0.0),
    (0.0, 0.0, 1.0),
)
FASTEST_WHEEL_RAD_S = 25.0  # 0.9 m/s
FASTEST_HEAD_RAD_S = 3.0
# The URDF states 100 N m; these are enough, and start the robot without a jerk.
WHEEL_TORQUE_NM = 4.0
HEAD_TORQUE_NM = 20.0
START_HEIGHT_M = 0.481  # of the base; the wheels are then 1 cm above the floor

REACHED_M = 0.3


class DriveToMark(Task):
    """Drive to a mark that is somewhere around, and look at it."""

    reward_weights: ClassVar[Mapping[str, float]] = {
        "near": 0.4,
        "there": 0.3,
        "facing": 0.2,
        "gaze": 0.1,
        "effort": 0.02,
    }
    observation_space = spaces.Box(-np.inf, np.inf, (10,), np.float32)

    def __init__(self, reward: Mapping[str, float] | None, *, farthest_m: float) -> None:
        """Set the weights, and how far away a mark can be [m]."""
        super().__init__(reward)
        self.farthest_m = farthest_m

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Stand in the middle, facing +y; the mark lies in any direction, 1 m away or more."""
        angle, distance = rng.uniform(-np.pi, np.pi), rng.uniform(1.0, self.farthest_m)
        return InitialState(
            joint_position=np.array([0.0, 0.0, 0.0, 0.0, rng.uniform(-0.5, 0.5)]),
            joint_velocity=np.zeros(5),
            base_position=(0.0, 0.0, START_HEIGHT_M),
            memory={"mark": distance * np.array([np.cos(angle), np.sin(angle)])},
        )

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return where the mark is, and how the robot moves.

        Returns:
            Distance of the mark [m], and cosine and sine of its direction from the front of the
            body and from the front of the head; speed ahead [m/s]; turning [2 rad/s]; tilt to the
            right and forward; speed of the head [3 rad/s]. All are of the order of 1, so that
            they need no normalisation.
        """
        turn = columns(state.base_orientation)
        ahead, left, distance = self._mark(state)
        seen_ahead, seen_left = self._seen(state)
        return observation_of(
            distance,
            ahead,
            left,
            seen_ahead,
            seen_left,
            rotate_back(turn, columns(state.base_velocity))[1],
            rotate_back(turn, columns(state.base_angular_velocity))[2] / 2.0,
            *gravity_direction(turn)[:2],
            columns(state.joint_velocity)[4] / FASTEST_HEAD_RAD_S,
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``near`` is 1 at the mark and falls to 0 at 3 m, so that every step towards it pays;
        ``there`` is 1 at the mark and 0.1 half a metre away, so that stopping short does not.
        ``facing`` is 1 if the mark lies ahead, and pays for turning before anything else does;
        ``gaze`` is 1 if the head looks at it. Both are 0 from 90 degrees on, and 1 on the mark
        itself, which has no direction.
        """
        ahead, _, distance = self._mark(state)
        seen_ahead, _ = self._seen(state)
        forward, turning, _ = columns(action)
        at = (0.0, 0.5 * REACHED_M)
        return {
            "near": tolerance(distance, at, margin=3.0, value_at_margin=0.0, slope="linear"),
            "there": tolerance(distance, at, margin=0.5),
            "facing": np.where(distance < REACHED_M, 1.0, np.maximum(ahead, 0.0)),
            "gaze": np.where(distance < REACHED_M, 1.0, np.maximum(seen_ahead, 0.0)),
            "effort": -0.5 * (forward * forward + turning * turning),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether it tilted by more than 45 degrees."""
        return {"fell": gravity_direction(columns(state.base_orientation))[2] > -0.7}

    def success(self, state: State, survived: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether it stands at the mark in the end."""
        near: NDArray[np.bool_] = survived & (self._mark(state)[2] < REACHED_M)
        return near

    @staticmethod
    def _mark(state: State) -> Components:
        """Return the direction of the mark, ahead and to the left, and its distance [m]."""
        x, y, _ = columns(state.base_position)
        mark_x, mark_y = columns(state.memory["mark"])
        right, ahead, _ = rotate_back(
            columns(state.base_orientation), [mark_x - x, mark_y - y, 0.0 * x]
        )
        distance = np.sqrt(right * right + ahead * ahead)
        length = np.maximum(distance, 1e-6)
        return [ahead / length, -right / length, distance]

    def _seen(self, state: State) -> Components:
        """Return the direction of the mark, ahead and to the left, as the head sees it."""
        ahead, left, _ = self._mark(state)
        angle = columns(state.joint_position)[4]
        cosine, sine = np.cos(angle), np.sin(angle)
        return [ahead * cosine + left * sine, left * cosine - ahead * sine]


class R2D2Env(BaseRobotEnv):
    """R2D2 on a smooth floor, at 10 actions a second."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.45), distance_m=3.4, yaw_deg=200.0, pitch_deg=-28.0
    )

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        farthest_m: float = 2.5,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of the terms to change, by name.
            farthest_m: How far away a mark can be [m]; the nearest is 1 m away.
            options: See ``BaseRobotEnv``; ``episode_s`` is 8 by default.
        """
        options.setdefault("episode_s", 8.0)
        self._disc: int | None = None
        super().__init__(
            RobotSpec(
                urdf="r2d2.urdf",
                action_mode=ActionMode.VELOCITY,
                action_scale=(*(FASTEST_WHEEL_RAD_S,) * 4, FASTEST_HEAD_RAD_S),
                joints=f"{WHEELS}|{HEAD}",
                mixing=MIXING,
                max_force=(*(WHEEL_TORQUE_NM,) * 4, HEAD_TORQUE_NM),
                base_position=(0.0, 0.0, START_HEIGHT_M),
                fixed_base=False,
                sensors=SensorSpec(base=True),
            ),
            DriveToMark(reward, farthest_m=farthest_m),
            WorldSpec(time_step_s=1 / 120, substeps=12, ground_friction=0.4),
            **options,
        )

    def build_scenery(self) -> None:
        """Lay a disc on the floor, where the mark will be."""
        self._disc = add_cylinder(
            self.simulation, REACHED_M, 0.01, (0.0, 0.0, 0.005), (1.0, 0.45, 0.1, 1.0)
        )

    def update_scenery(self) -> None:
        """Put the disc on the mark."""
        if self._disc is not None and "mark" in self.state.memory:
            x, y = columns(self.state.memory["mark"])
            move(self.simulation, self._disc, (x, y, 0.005))


gymnasium.register("r2d2_robot/DriveToMark-v0", entry_point=f"{__name__}:R2D2Env")

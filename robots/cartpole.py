"""Cart-pole: keep a pole upright on a cart that is pushed along a rail."""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.elementary import cos, sin
from robots.env import EnvOptions
from robots.rail import RED, RailEnv, cartpole
from robots.rewards import tolerance
from robots.robot import InitialState
from robots.sensors import Floats, State
from robots.task import Task, columns, observation_of

TRACK_HALF_LENGTH_M = 2.4
FALL_ANGLE_RAD = 0.2095

_INF = np.inf


class CartPoleBalance(Task):
    """Balance the pole near the middle of the rail.

    The limits are those of Barto, Sutton and Anderson (1983, doi:10.1109/TSMC.1983.6313077). One
    for every step survived would let the cart drift, so half of the reward is for the centre.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"alive": 0.5, "centred": 0.5, "effort": 0.01}
    observation_space = spaces.Box(
        np.array([-_INF, -_INF, -1.0, -1.0, -_INF], np.float32),
        np.array([_INF, _INF, 1.0, 1.0, _INF], np.float32),
    )

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw position [m, rad] and velocity [m/s, rad/s] within 0.05 of rest, shape (2,) each."""
        position, velocity = rng.uniform(-0.05, 0.05, (2, 2))
        return InitialState(position, velocity)

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return cart position and velocity, sine and cosine of the angle, angular velocity.

        Returns:
            [m, m/s, 1, 1, rad/s], shape (..., 5); the angle is 0 when upright.
        """
        (cart, angle), (cart_velocity, angular_velocity) = state.joints
        return observation_of(cart, cart_velocity, sin(angle), cos(angle), angular_velocity)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting.

        Args:
            state: State after the step, arrays of shape (..., 2).
            action: In [-1, 1], shape (..., 1).

        Returns:
            ``alive`` 1 while the pole stands; ``centred`` 1 in the middle of the rail and 0.1 at
            1 m from it; ``effort`` minus the squared action. Each of shape (...).
        """
        (cart, angle), _ = state.joints
        (push,) = columns(action)
        return {
            "alive": 1.0 * (abs(angle) <= FALL_ANGLE_RAD),
            "centred": tolerance(cart, margin=1.0),
            "effort": -(push * push),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the pole fell and whether the cart left the track, each of shape (...)."""
        (cart, angle), _ = state.joints
        return {
            "pole_fell": abs(angle) > FALL_ANGLE_RAD,
            "cart_left_track": abs(cart) > TRACK_HALF_LENGTH_M,
        }


class SimpleRobotEnv(RailEnv):
    """Cart-pole balance at 50 Hz on PyBullet's ``cartpole.urdf``."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.34), distance_m=4.0, yaw_deg=10.0, pitch_deg=-13.0, fov_deg=32.0
    )

    def __init__(
        self,
        *,
        discrete: bool = False,
        reward: Mapping[str, float] | None = None,
        force_n: float = 10.0,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            discrete: Choose between full force to the left (0) and to the right (1) instead of a
                continuous action in [-1, 1].
            reward: Weights of the terms ``alive``, ``centred`` and ``effort`` to change.
            force_n: Force on the cart at action 1 [N].
            options: See ``BaseRobotEnv``; ``episode_s`` is 10 by default.
        """
        super().__init__(
            cartpole(force_n),
            CartPoleBalance(reward),
            discrete_actions=np.array([[-1.0], [1.0]]) if discrete else None,
            **options,
        )

    def build_scenery(self) -> None:
        """Paint the robot, lay a floor marked every half metre, and set a post at either end."""
        self.paint_robot()
        self.lay_floor(-0.26, marks_half_width_m=0.45)
        self.set_posts(TRACK_HALF_LENGTH_M + 0.25, -0.05, (0.05, 0.25, 0.2), RED)

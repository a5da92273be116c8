"""Double pendulum: keep two poles, one hinged on the other, upright on a cart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.cartpole import GREY, RailEnv
from robots.elementary import cos, sin
from robots.env import EnvOptions
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, State
from robots.task import Task, columns, observation_of

URDF = Path(__file__).parent / "assets" / "double_pendulum.urdf"

TRACK_HALF_LENGTH_M = 2.4
POLE_LENGTH_M = 0.6
"""Length of each of the two poles."""
FALL_HEIGHT_M = 1.0
"""Height of the upper pole's tip above the cart below which the poles count as fallen."""

_OF_POLE = ("sin", "cos", "angular velocity")


class DoublePendulumBalance(Task):
    """Balance both poles near the middle of the rail.

    Angles are those of each pole to the vertical, so that the observation of the upper pole does
    not depend on the lower one.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"alive": 0.5, "centred": 0.5, "effort": 0.01}
    _bound = np.array([np.inf, np.inf, 1.0, 1.0, np.inf, 1.0, 1.0, np.inf], np.float32)
    observation_space = spaces.Box(-_bound, _bound)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw position [m, rad] and velocity [m/s, rad/s] within 0.05 of rest, shape (3,) each."""
        position, velocity = rng.uniform(-0.05, 0.05, (2, 3))
        return InitialState(position, velocity)

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return cart position and velocity, then of each pole sine, cosine, angular velocity.

        Returns:
            [m, m/s, 1, 1, rad/s, 1, 1, rad/s], shape (..., 8); the lower pole comes first.
        """
        (cart, lower, bend), (cart_velocity, lower_velocity, bend_velocity) = state.joints
        upper = lower + bend
        return observation_of(
            cart,
            cart_velocity,
            sin(lower),
            cos(lower),
            lower_velocity,
            sin(upper),
            cos(upper),
            lower_velocity + bend_velocity,
        )

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        poles = [f"{what} {pole}" for pole in ("lower", "upper") for what in _OF_POLE]
        return ("cart", "cart velocity", *poles)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``alive``: 1 while the poles stand; ``centred``: 1 in the middle of the rail and 0.1 at 1 m
        from it; ``effort``: minus the squared action.
        """
        (cart, _, _), _ = state.joints
        (push,) = columns(action)
        return {
            "alive": 1.0 * (tip_height(state) >= FALL_HEIGHT_M),
            "centred": tolerance(cart, margin=1.0),
            "effort": -(push * push),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the poles fell and whether the cart left the track, each shape (...)."""
        (cart, _, _), _ = state.joints
        return {
            "poles_fell": tip_height(state) < FALL_HEIGHT_M,
            "cart_left_track": abs(cart) > TRACK_HALF_LENGTH_M,
        }


def tip_height(state: State) -> Any:
    """Return the height of the upper pole's tip above the cart's hinge [m], shape (...)."""
    (_, lower, bend), _ = state.joints
    return POLE_LENGTH_M * cos(lower) + POLE_LENGTH_M * cos(lower + bend)


class DoublePendulumEnv(RailEnv):
    """Double-pendulum balance at 50 Hz on a URDF of this package."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.48), distance_m=4.0, yaw_deg=10.0, pitch_deg=-12.0, fov_deg=32.0
    )

    def __init__(
        self,
        *,
        reward: Mapping[str, float] | None = None,
        force_n: float = 20.0,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment.

        Args:
            reward: Weights of the terms ``alive``, ``centred`` and ``effort`` to change.
            force_n: Force on the cart at action 1 [N].
            options: See ``BaseRobotEnv``; ``episode_s`` is 10 by default.
        """
        super().__init__(
            RobotSpec(
                urdf=str(URDF),
                action_scale=force_n,
                action_mode=ActionMode.TORQUE,
                actuated="rail_to_cart",
                inertia_from_file=True,
            ),
            DoublePendulumBalance(reward),
            **options,
        )

    def build_scenery(self) -> None:
        """Add the rail, on a floor marked every half metre."""
        post = (TRACK_HALF_LENGTH_M + 0.15, -0.03)
        self.add_rail(-0.16, post, (0.05, 0.15, 0.12), GREY, marks_half_width_m=0.3)

"""Cart-pole swing-up: bring a hanging pole up by moving its cart, and keep it there."""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np

from robots.camera import Camera
from robots.cartpole import TRACK_HALF_LENGTH_M, CartPoleBalance
from robots.elementary import cos
from robots.env import EnvOptions
from robots.rail import RED, RailEnv, cartpole
from robots.rewards import tolerance
from robots.robot import InitialState
from robots.sensors import Floats, Memory, State
from robots.task import Bools, columns
from robots.world import WorldSpec

UPRIGHT_COSINE = 0.95
"""Cosine of the angle within which the pole counts as upright: 18 degrees."""
UPRIGHT_STEPS = 25
"""Steps at the end of an episode for which the pole must be upright: one second at 25 Hz."""

FLOOR_M = -1.25


class CartPoleSwingUp(CartPoleBalance):
    """Swing the pole up and keep it up near the middle of the rail; observed as for balance.

    The reward is a product: as a sum, a policy collected the share of the upright pole by
    spinning it for ever. Each factor but the first stays above 0, so that the way up is rewarded
    wherever and however fast it is gone.
    """

    reward_weights: ClassVar[Mapping[str, float]] = {"upright": 1.0, "effort": 0.01}

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw position [m, rad] and velocity within 0.05 of rest with the pole hanging."""
        position, velocity = rng.uniform(-0.05, 0.05, (2, 2))
        position[1] += np.pi
        return InitialState(position, velocity, memory={"upright_steps": np.zeros(())})

    def remember(self, state: State, action: Floats) -> Memory:
        """Count the steps since the pole was last not upright."""
        del action
        (_, angle), _ = state.joints
        upright = cos(angle) > UPRIGHT_COSINE
        return {"upright_steps": (state.memory["upright_steps"] + 1.0) * upright}

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting.

        Args:
            state: State after the step, arrays of shape (..., 2).
            action: In [-1, 1], shape (..., 1).

        Returns:
            ``upright`` the product of the height of the pole's tip, 0 hanging and 1 upright, of
            closeness to the middle (1, at 1 m 0.55, far off 0.5) and of slowness (1, at 5 rad/s
            0.28, spinning 0.2); ``effort`` minus the squared action. Each of shape (...).
        """
        (cart, angle), (_, angular_velocity) = state.joints
        (push,) = columns(action)
        height = 0.5 + 0.5 * cos(angle)
        centred = 0.5 + 0.5 * tolerance(cart, margin=1.0)
        slow = 0.2 + 0.8 * tolerance(angular_velocity, margin=5.0)
        return {"upright": height * centred * slow, "effort": -(push * push)}

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the cart left the track, shape (...)."""
        (cart, _), _ = state.joints
        return {"cart_left_track": abs(cart) > TRACK_HALF_LENGTH_M}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the pole was upright for the whole last second."""
        held: Bools = survived & (state.memory["upright_steps"] >= UPRIGHT_STEPS)
        return held


class CartPoleSwingUpEnv(RailEnv):
    """Cart-pole swing-up at 25 Hz on PyBullet's ``cartpole.urdf``."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, -0.02), distance_m=4.4, yaw_deg=10.0, pitch_deg=-8.0, fov_deg=32.0
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
            discrete: Choose among full force to the left (0), none (1) and full force to the
                right (2) instead of a continuous action in [-1, 1].
            reward: Weights of the terms ``upright`` and ``effort`` to change.
            force_n: Force on the cart at action 1 [N].
            options: See ``BaseRobotEnv``; ``episode_s`` is 10 by default.
        """
        super().__init__(
            cartpole(force_n),
            CartPoleSwingUp(reward),
            # 25 Hz: at 50 Hz one of two PPO runs did not learn to stay up in 131,072 steps.
            WorldSpec(substeps=8),
            discrete_actions=np.array([[-1.0], [0.0], [1.0]]) if discrete else None,
            **options,
        )

    def build_scenery(self) -> None:
        """Paint the robot, lay a floor below the hanging pole, and carry the rail by two posts."""
        self.paint_robot()
        self.lay_floor(FLOOR_M)
        half_height = -0.5 * FLOOR_M
        size = (0.05, 0.05, half_height + 0.1)
        self.set_posts(TRACK_HALF_LENGTH_M + 0.3, -half_height, size, RED)

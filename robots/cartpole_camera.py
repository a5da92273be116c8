"""Cart-pole balance by camera: the policy observes two small images and no numbers."""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.cartpole import FALL_ANGLE_RAD, CartPoleBalance
from robots.env import BaseRobotEnv, EnvOptions
from robots.rail import cartpole
from robots.rendering import paint
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.world import WorldSpec

TRACK_HALF_LENGTH_M = 1.0
"""What the camera overlooks."""
WIDTH, HEIGHT = 80, 40
"""Size of an image [pixels]."""
OVERSAMPLING = 2
"""Pixels rendered for each pixel shown, along width and height: PyBullet's renderer knows nothing
between pole and background, and a falling pole moves by less than a pixel a step."""

EYE = Camera(
    target=(0.0, 0.0, 0.5),
    distance_m=8.0,
    yaw_deg=0.0,
    pitch_deg=0.0,
    fov_deg=9.5,
    width=OVERSAMPLING * WIDTH,
    height=OVERSAMPLING * HEIGHT,
)
"""The robot's camera: fixed to the world, square to the rail; sees 1.3 m by 2.7 m there."""


class CartPoleByCamera(CartPoleBalance):
    """Balance the pole on a rail of 1 m to either side, seen by a camera.

    The second image is that of the previous step; without it nothing shows how fast the pole falls.
    """

    observation_space: Any = spaces.Box(0, 255, (HEIGHT, WIDTH, 2), np.uint8)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the image of this step and the previous one; at the start they are the same."""
        del action
        seen = darkness(state.image)
        return {"seen": seen, "seen_before": state.memory.get("seen", seen)}

    def observation(self, state: State) -> Any:
        """Return this step's image and the previous one, uint8, shape (..., 40, 80, 2)."""
        return np.stack([state.memory["seen"], state.memory["seen_before"]], axis=-1)

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the pole fell and whether the cart left the image, shape (...)."""
        (cart, angle), _ = state.joints
        return {
            "pole_fell": abs(angle) > FALL_ANGLE_RAD,
            "cart_left_track": abs(cart) > TRACK_HALF_LENGTH_M,
        }


def darkness(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how dark blocks of pixels are, in whole numbers so that all machines agree.

    The white background becomes 0, and a network's first layer sees nothing but the robot.

    Args:
        image: Shape (..., 80, 160, 3).

    Returns:
        255 minus the mean over a block of 2 x 2 and its colours, shape (..., 40, 80).
    """
    blocks = image.reshape(*image.shape[:-3], HEIGHT, OVERSAMPLING, WIDTH, OVERSAMPLING * 3)
    total = blocks.sum(axis=(-3, -1), dtype=np.uint16)
    mean: NDArray[np.uint8] = (total // (3 * OVERSAMPLING * OVERSAMPLING)).astype(np.uint8)
    return 255 - mean


class CartPoleCameraEnv(BaseRobotEnv):
    """Cart-pole balance by camera at 25 Hz on PyBullet's ``cartpole.urdf``."""

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.4), distance_m=4.0, yaw_deg=0.0, pitch_deg=-5.0, fov_deg=28.0
    )

    def __init__(
        self,
        *,
        discrete: bool = False,
        reward: Mapping[str, float] | None = None,
        force_n: float = 5.0,
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
            cartpole(force_n, sensors=SensorSpec(camera=EYE)),
            CartPoleByCamera(reward),
            # 25 Hz: half the images of the other cart-poles, and twice the motion in each.
            WorldSpec(substeps=8),
            discrete_actions=np.array([[-1.0], [1.0]]) if discrete else None,
            **options,
        )

    def build_scenery(self) -> None:
        """Paint the pole darkest; the background stays white, since a floor would cost time."""
        simulation, body = self.simulation, self.robot.body
        paint(simulation, body, -1, (0.80, 0.84, 0.88, 1.0))
        paint(simulation, body, 0, (0.20, 0.47, 0.80, 1.0))
        paint(simulation, body, 1, (0.10, 0.02, 0.02, 1.0))

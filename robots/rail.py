"""What robots on a rail share: the cart-pole of ``pybullet_data``, and how a rail is shown."""

from dataclasses import replace
from typing import Any

import numpy as np

from robots.camera import Camera, Colour
from robots.env import BaseRobotEnv
from robots.rendering import add_box, paint
from robots.robot import ActionMode, RobotSpec

GREY: Colour = (0.52, 0.56, 0.62, 1.0)
RED: Colour = (0.86, 0.30, 0.28, 1.0)
_LINKS: tuple[Colour, ...] = (GREY, (0.20, 0.47, 0.80, 1.0), (1.0, 0.58, 0.16, 1.0), RED)
_FLOOR: Colour = (0.80, 0.84, 0.88, 1.0)


def cartpole(force_n: float, **options: Any) -> RobotSpec:
    """Return the cart-pole of ``pybullet_data``, whose cart is pushed.

    Args:
        force_n: Force on the cart at action 1 [N].
        options: Other fields of ``RobotSpec``.
    """
    return RobotSpec(
        urdf="cartpole.urdf",
        action_scale=force_n,
        action_mode=ActionMode.TORQUE,
        actuated="slider_to_cart",
        **options,
    )


class RailEnv(BaseRobotEnv):
    """A cart on a rail with one or two poles: how it is shown."""

    def current_camera(self) -> Camera:
        """Return the camera, following the cart by half so that its motion stays visible."""
        camera = super().current_camera()
        cart = float(self.state.joint_position[0])
        return replace(camera, target=(0.5 * cart, *camera.target[1:]))

    def paint_robot(self) -> None:
        """Paint rail, cart and poles."""
        for link in range(-1, len(self.robot.joints)):
            paint(self.simulation, self.robot.body, link, _LINKS[link + 1])

    def lay_floor(self, height_m: float, marks_half_width_m: float | None = None) -> None:
        """Lay a floor, on request with a mark every half metre."""
        add_box(self.simulation, (40.0, 40.0, 0.01), (0.0, 0.0, height_m), _FLOOR)
        if marks_half_width_m is None:
            return
        for mark in np.arange(-2.0, 2.1, 0.5):
            colour = (0.35, 0.40, 0.48, 1.0) if mark == 0 else (0.60, 0.66, 0.73, 1.0)
            size = (0.015, marks_half_width_m, 0.005)
            add_box(self.simulation, size, (float(mark), 0.0, height_m + 0.015), colour)

    def set_posts(
        self, distance_m: float, height_m: float, size: tuple[float, float, float], colour: Colour
    ) -> None:
        """Set a post at either end: distance from the middle, height of its middle, half edges."""
        for side in (-1, 1):
            add_box(self.simulation, size, (side * distance_m, 0.0, height_m), colour)

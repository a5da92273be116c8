"""What is seen of an environment: frames, the camera, and scenery."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera

if TYPE_CHECKING:
    from robots.sensors import State
    from robots.world import World


class View(gymnasium.Env[Any, Any]):
    """Renders ``BaseRobotEnv``."""

    camera: ClassVar[Camera] = Camera()
    """The view that ``render`` shows; its size is the default size. Its target is relative to
    the base where the base is free."""
    world: "World"
    state: "State"
    _render_size: tuple[int, int]
    _next_frame_s: float = 0.0

    def set_view(self, mode: str | None, width: int | None, height: int | None) -> None:
        """Choose what ``render`` does.

        Args:
            mode: None, "human" or "rgb_array".
            width: Width of a frame [pixels]; the camera's if None.
            height: Height of a frame [pixels]; the camera's if None.

        Raises:
            ValueError: If the mode is unknown.
        """
        if mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode={mode!r} is unknown. Use None, 'human' or 'rgb_array'.")
        self.render_mode = mode
        self._render_size = (
            self.camera.width if width is None else width,
            self.camera.height if height is None else height,
        )

    def render(self) -> NDArray[np.uint8] | None:
        """Return a frame, shape (height, width, 3); in "human" mode keep the window in real time.

        Returns:
            The frame in "rgb_array" mode, otherwise None.
        """
        if self.render_mode is not None:
            self.update_scenery()
        if self.render_mode == "rgb_array":
            return self.world.picture(self.current_camera())
        if self.render_mode == "human":
            time.sleep(max(0.0, self._next_frame_s - time.monotonic()))
            self._next_frame_s = time.monotonic() + self.world.simulation.step_s
        return None

    def current_camera(self) -> Camera:
        """Return the camera of the present frame, which follows a free base."""
        width, height = self._render_size
        camera = replace(self.camera, width=width, height=height)
        if self.world.robot.free_base and self.state.base_position is not None:
            x, y, _ = self.state.base_position.tolist()
            target = camera.target
            camera = replace(camera, target=(x + target[0], y + target[1], target[2]))
        return camera

    def build_scenery(self) -> None:
        """Add what only the eye needs; called when rendering, and must not touch the physics."""

    def update_scenery(self) -> None:
        """Bring scenery up to date before a frame, such as the mark of a goal."""

"""Rendering: scenery without contacts, images, the window, and an environment's ``render``."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Camera, Colour, Vector3
from robots.pictures import camera_image
from robots.simulation import Simulation

if TYPE_CHECKING:
    from robots.sensors import State
    from robots.world import World


def add_box(
    simulation: Simulation, half_extents: Vector3, position: Vector3, colour: Colour
) -> int:
    """Add scenery: a box that is seen but touches nothing, at a world position [m].

    Returns:
        The id of its body.
    """
    return _add(simulation, position, colour, pybullet.GEOM_BOX, halfExtents=half_extents)


def add_sphere(simulation: Simulation, radius: float, position: Vector3, colour: Colour) -> int:
    """Add a ball [m] that is seen but touches nothing; returns the id of its body."""
    return _add(simulation, position, colour, pybullet.GEOM_SPHERE, radius=radius)


def add_cylinder(
    simulation: Simulation, radius: float, length: float, position: Vector3, colour: Colour
) -> int:
    """Add an upright cylinder [m] that touches nothing; returns the id of its body."""
    size = {"radius": radius, "length": length}
    return _add(simulation, position, colour, pybullet.GEOM_CYLINDER, **size)


def _add(simulation: Simulation, position: Vector3, colour: Colour, kind: int, **size: Any) -> int:
    shape = simulation.bind(pybullet.createVisualShape)(kind, rgbaColor=colour, **size)
    body: int = simulation.bind(pybullet.createMultiBody)(
        baseVisualShapeIndex=shape, basePosition=position
    )
    return body


def move(simulation: Simulation, body: int, position: Vector3) -> None:
    """Put scenery elsewhere [m]."""
    simulation.bind(pybullet.resetBasePositionAndOrientation)(
        body, [float(x) for x in position], [0.0, 0.0, 0.0, 1.0]
    )


def paint(simulation: Simulation, body: int, link: int, colour: Colour) -> None:
    """Colour one link; -1 is the base."""
    simulation.bind(pybullet.changeVisualShape)(body, link, rgbaColor=colour)


def aim_window(simulation: Simulation, camera: Camera) -> None:
    """Point the window at the camera's target and hide PyBullet's panels."""
    simulation.bind(pybullet.configureDebugVisualizer)(pybullet.COV_ENABLE_GUI, 0)
    simulation.bind(pybullet.resetDebugVisualizerCamera)(
        camera.distance_m, camera.yaw_deg, camera.pitch_deg, camera.target
    )


class View(gymnasium.Env[Any, Any]):
    """Renders ``BaseRobotEnv``."""

    camera: ClassVar[Camera] = Camera()
    """The view that ``render`` shows; its size is the default size. Its target is relative to
    the base where the base is free."""
    world: "World"
    state: "State"
    _render_size: dict[str, Any]
    _next_frame_s: float = 0.0

    def set_view(self, mode: str | None, width: int | None, height: int | None) -> None:
        """Set what ``render`` does; the arguments are those of ``BaseRobotEnv``."""
        if mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode={mode!r} is unknown. Use None, 'human' or 'rgb_array'.")
        self.render_mode = mode
        size = {"width": width, "height": height}
        self._render_size = {name: given for name, given in size.items() if given is not None}

    def render(self) -> NDArray[np.uint8] | None:
        """Return a frame, shape (height, width, 3), in "rgb_array" mode.

        In "human" mode return None, and keep the window in real time.
        """
        if self.render_mode is not None:
            self.update_scenery()
        if self.render_mode == "rgb_array":
            return camera_image(self.world.simulation, self.current_camera())
        if self.render_mode == "human":
            time.sleep(max(0.0, self._next_frame_s - time.monotonic()))
            self._next_frame_s = time.monotonic() + self.world.simulation.step_s
        return None

    def current_camera(self) -> Camera:
        """Return the camera of the present frame, which follows a free base."""
        camera = replace(self.camera, **self._render_size)
        if self.world.robot.free_base and self.state.base_position is not None:
            (x, y, _), (ahead, aside, height) = self.state.base_position.tolist(), camera.target
            camera = replace(camera, target=(x + ahead, y + aside, height))
        return camera

    def build_scenery(self) -> None:
        """Add what only the eye needs; called when rendering, and must not touch the physics."""

    def update_scenery(self) -> None:
        """Bring scenery up to date before a frame, such as the mark of a goal."""

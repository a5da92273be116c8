"""Rendering: scenery without contacts, images, the window, and an environment's ``render``."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera, Colour, Vector3
from robots.simulation import Simulation

if TYPE_CHECKING:
    from robots.sensors import State
    from robots.world import World

_FLOOR: Colour = (0.80, 0.84, 0.88, 1.0)
_SQUARE: Colour = (0.68, 0.73, 0.80, 1.0)
_PAINTS: tuple[Colour, ...] = (
    (0.25, 0.28, 0.33, 1.0),
    (0.20, 0.47, 0.80, 1.0),
    (0.95, 0.55, 0.15, 1.0),
)
# Difference of a pixel's colours below which it is grey, brightness from which it is pale, and
# share of such pixels from which a robot is hard to see.
_GREYEST, _PALEST, _PALE_SHARE = 30, 110, 0.9


def add_box(
    simulation: Simulation, half_extents: Vector3, position: Vector3, colour: Colour
) -> int:
    """Add scenery: a box that is seen but touches nothing, at a world position [m].

    Returns:
        Its body.
    """
    return simulation.add_marker("box", half_extents, position, colour)


def add_sphere(simulation: Simulation, radius: float, position: Vector3, colour: Colour) -> int:
    """Add a ball [m] that is seen but touches nothing; returns its body."""
    return simulation.add_marker("sphere", (radius, 0.0, 0.0), position, colour)


def add_cylinder(
    simulation: Simulation, radius: float, length: float, position: Vector3, colour: Colour
) -> int:
    """Add an upright cylinder [m] that touches nothing; returns its body."""
    return simulation.add_marker("cylinder", (radius, length, 0.0), position, colour)


def add_floor(simulation: Simulation, height_m: float, square_m: float) -> None:
    """Lay a floor that touches nothing, and on it a square with edges of twice that length [m]."""
    add_box(simulation, (20.0, 20.0, 0.01), (0.0, 0.0, height_m - 0.02), _FLOOR)
    add_box(simulation, (square_m, square_m, 0.005), (0.0, 0.0, height_m - 0.006), _SQUARE)


def move(simulation: Simulation, body: int, position: Vector3) -> None:
    """Put scenery elsewhere [m]."""
    simulation.place_marker(body, position)


def paint(simulation: Simulation, body: int, link: int, colour: Colour) -> None:
    """Colour one link; -1 is the base."""
    simulation.paint(body, link, colour)


def make_visible(simulation: Simulation, camera: Camera, body: int) -> None:
    """Paint the links of a robot that is as pale and grey as floors are; others keep their own."""
    pixels = simulation.colours_of(camera, body).astype(np.int64)
    is_grey = np.ptp(pixels, axis=1) < _GREYEST
    if len(pixels) and (is_grey & (pixels.max(axis=1) > _PALEST)).mean() > _PALE_SHARE:
        links = simulation.links(body).values()
        for number, link in enumerate(links):
            paint(simulation, body, link, _PAINTS[number % len(_PAINTS)])


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
            robots = [robot.body for robot in self.world.robots]
            return self.world.simulation.shaded_picture(self.current_camera(), robots)
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
        """Add what only the eye needs; called when rendering, and must not touch the physics.

        By default a floor below the robot where there is no ground, and colours where the robot
        has none. Not for a robot with a camera of its own: what it sees is its task's.
        """
        world, simulation, camera = self.world, self.world.simulation, self.camera
        if world.sensors.spec.camera is not None:
            return
        if world.ground is None:
            add_floor(simulation, simulation.lowest_m(world.robot.body), camera.distance_m / 3.0)
        if world.robot.free_base:
            place = simulation.pose_reader(world.robot.body)()[0]
            (x, y, _), (ahead, aside, height) = place, camera.target
            camera = replace(camera, target=(x + ahead, y + aside, height))
        make_visible(simulation, replace(camera, width=120, height=80), world.robot.body)

    def update_scenery(self) -> None:
        """Bring scenery up to date before a frame, such as the mark of a goal."""

"""What the eye sees of a world: scenery that touches nothing, pictures, the window."""

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Camera, Colour, Vector3
from robots.simulation import Simulation


def add_box(
    simulation: Simulation, half_extents: Vector3, position: Vector3, colour: Colour
) -> int:
    """Add scenery: a box that is seen but touches nothing, at a world position [m].

    Returns:
        The id of its body.
    """
    shape = simulation.bind(pybullet.createVisualShape)(
        pybullet.GEOM_BOX, halfExtents=half_extents, rgbaColor=colour
    )
    return _place(simulation, shape, position)


def add_sphere(simulation: Simulation, radius: float, position: Vector3, colour: Colour) -> int:
    """Add a ball [m] that is seen but touches nothing; returns the id of its body."""
    shape = simulation.bind(pybullet.createVisualShape)(
        pybullet.GEOM_SPHERE, radius=radius, rgbaColor=colour
    )
    return _place(simulation, shape, position)


def add_cylinder(
    simulation: Simulation, radius: float, length: float, position: Vector3, colour: Colour
) -> int:
    """Add an upright cylinder [m] that touches nothing; returns the id of its body."""
    shape = simulation.bind(pybullet.createVisualShape)(
        pybullet.GEOM_CYLINDER, radius=radius, length=length, rgbaColor=colour
    )
    return _place(simulation, shape, position)


def move(simulation: Simulation, body: int, position: Vector3) -> None:
    """Put scenery elsewhere [m]."""
    simulation.bind(pybullet.resetBasePositionAndOrientation)(
        body, [float(x) for x in position], [0.0, 0.0, 0.0, 1.0]
    )


def paint(simulation: Simulation, body: int, link: int, colour: Colour) -> None:
    """Colour one link; -1 is the base."""
    simulation.bind(pybullet.changeVisualShape)(body, link, rgbaColor=colour)


def camera_image(simulation: Simulation, camera: Camera) -> NDArray[np.uint8]:
    """Return what a camera sees as RGB, shape (height, width, 3)."""
    view = pybullet.computeViewMatrixFromYawPitchRoll(
        camera.target, camera.distance_m, camera.yaw_deg, camera.pitch_deg, 0, 2
    )
    aspect = camera.width / camera.height
    projection = pybullet.computeProjectionMatrixFOV(camera.fov_deg, aspect, 0.1, 100)
    hardware = simulation.hardware_pictures
    image = simulation.bind(pybullet.getCameraImage)(
        camera.width,
        camera.height,
        view,
        projection,
        lightDirection=(1.5, -3.0, 6.0),
        lightDistance=6.0,
        shadow=0,  # Shadows triple the time of a frame.
        lightAmbientCoeff=0.65,
        lightDiffuseCoeff=0.5,
        lightSpecularCoeff=0.05,
        flags=pybullet.ER_NO_SEGMENTATION_MASK,
        renderer=pybullet.ER_BULLET_HARDWARE_OPENGL if hardware else pybullet.ER_TINY_RENDERER,
    )[2]
    rgba = np.asarray(image, np.uint8).reshape(camera.height, camera.width, 4)
    return rgba[:, :, :3].copy()


def aim_window(simulation: Simulation, camera: Camera) -> None:
    """Point the window at the camera's target and hide PyBullet's panels."""
    simulation.bind(pybullet.configureDebugVisualizer)(pybullet.COV_ENABLE_GUI, 0)
    simulation.bind(pybullet.resetDebugVisualizerCamera)(
        camera.distance_m, camera.yaw_deg, camera.pitch_deg, camera.target
    )


def _place(simulation: Simulation, shape: int, position: Vector3) -> int:
    body: int = simulation.bind(pybullet.createMultiBody)(
        baseVisualShapeIndex=shape, basePosition=position
    )
    return body

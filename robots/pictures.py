"""What a camera sees."""

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Camera
from robots.simulation import Simulation


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

"""What a camera sees, and the shadows in what a viewer sees."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Camera
from robots.engines.bullet.client import Client

_LIGHT = (1.5, -3.0, 6.0)
# The light stands so many times farther off than the camera, so that its rays are nearly parallel.
_LIGHT_DISTANCE = 12.0
_SHADOW_PIXELS = 400
_SHADE = 0.72
# Share of the camera's distance; what lies less far behind another body gets no shadow of it.
_SHADOW_BIAS = 0.005


class _View(NamedTuple):
    """A picture, and what is in it."""

    rgb: NDArray[np.uint8]  # shape (height, width, 3)
    depth: NDArray[np.float64]  # of each pixel, 0 near and 1 far, shape (height, width)
    body: NDArray[np.int64]  # its id, -1 for the background, shape (height, width)
    matrix: NDArray[np.float64]  # from the world to the picture, shape (4, 4)


def camera_image(simulation: Client, camera: Camera) -> NDArray[np.uint8]:
    """Return what a camera sees as RGB, shape (height, width, 3)."""
    image = _take(simulation, camera, pybullet.ER_NO_SEGMENTATION_MASK, *_matrices(camera))[2]
    return _rgb(image, camera)


def shaded_image(
    simulation: Client, camera: Camera, unshaded: Collection[int] = ()
) -> NDArray[np.uint8]:
    """Return the same with the shadows that bodies cast on each other, in twice the time.

    Bullet's own software renderer has shadows, which fail on floors that reach beyond the light.

    Args:
        simulation: The world.
        camera: The camera.
        unshaded: Bodies that no shadow falls on, such as robots of many small parts.
    """
    seen = _look(simulation, camera, *_matrices(camera))
    far = _LIGHT_DISTANCE * camera.distance_m
    direction = np.array(_LIGHT) / np.linalg.norm(_LIGHT)
    eye = (np.array(camera.target) + far * direction).tolist()
    cone = 2.0 * float(np.degrees(np.arctan(1.0 / _LIGHT_DISTANCE)))
    reach = 4.0 * camera.distance_m
    lit = _look(
        simulation,
        Camera(width=_SHADOW_PIXELS, height=_SHADOW_PIXELS),
        pybullet.computeViewMatrix(eye, camera.target, (0, 0, 1)),
        pybullet.computeProjectionMatrixFOV(cone, 1.0, far - reach, far + reach),
    )
    rows, places = np.nonzero((seen.depth < 1.0) & ~np.isin(seen.body, list(unshaded)))
    x = (places + 0.5) * (2.0 / camera.width) - 1.0
    y = 1.0 - (rows + 0.5) * (2.0 / camera.height)
    points = np.stack([x, y, 2.0 * seen.depth[rows, places] - 1.0, np.ones_like(x)])
    points = np.linalg.inv(seen.matrix) @ points
    points = lit.matrix @ (points / points[3])
    x, y, depth = points[:3] / points[3]
    column = np.floor((0.5 + 0.5 * x) * _SHADOW_PIXELS).astype(np.int64)
    row = np.floor((0.5 - 0.5 * y) * _SHADOW_PIXELS).astype(np.int64)
    inside = (np.minimum(column, row) >= 0) & (np.maximum(column, row) < _SHADOW_PIXELS)
    rows, places, column, row = (part[inside] for part in (rows, places, column, row))
    # Depths are not linear, but nearly so from so far away.
    behind = 0.5 + 0.5 * depth[inside] - lit.depth[row, column]
    caster = lit.body[row, column]
    dark = (behind > _SHADOW_BIAS / 8.0) & (caster >= 0) & (caster != seen.body[rows, places])
    rows, places = rows[dark], places[dark]
    seen.rgb[rows, places] = (_SHADE * seen.rgb[rows, places]).astype(np.uint8)
    return seen.rgb


def colours_of(simulation: Client, camera: Camera, body: int) -> NDArray[np.uint8]:
    """Return the pixels of one body, shape (n, 3): textures are in no list of colours."""
    seen = _look(simulation, camera, *_matrices(camera))
    pixels: NDArray[np.uint8] = seen.rgb[seen.body == body]
    return pixels


def _matrices(camera: Camera) -> tuple[Any, Any]:
    view = pybullet.computeViewMatrixFromYawPitchRoll(
        camera.target, camera.distance_m, camera.yaw_deg, camera.pitch_deg, 0, 2
    )
    aspect = camera.width / camera.height
    return view, pybullet.computeProjectionMatrixFOV(camera.fov_deg, aspect, 0.1, 100)


def _look(simulation: Client, camera: Camera, view: Any, projection: Any) -> _View:
    taken = _take(simulation, camera, 0, view, projection)
    shape = camera.height, camera.width
    to_view, to_picture = (np.reshape(matrix, (4, 4)).T for matrix in (view, projection))
    return _View(
        _rgb(taken[2], camera),
        np.asarray(taken[3], np.float64).reshape(shape),
        np.asarray(taken[4], np.int64).reshape(shape),
        to_picture @ to_view,
    )


def _take(
    simulation: Client, camera: Camera, flags: int, view: Any, projection: Any
) -> Sequence[Any]:
    hardware = simulation.hardware_pictures
    picture: Sequence[Any] = simulation.bind(pybullet.getCameraImage)(
        camera.width,
        camera.height,
        view,
        projection,
        lightDirection=_LIGHT,
        lightDistance=6.0,
        shadow=0,
        lightAmbientCoeff=0.65,
        lightDiffuseCoeff=0.5,
        lightSpecularCoeff=0.05,
        flags=flags,
        renderer=pybullet.ER_BULLET_HARDWARE_OPENGL if hardware else pybullet.ER_TINY_RENDERER,
    )
    return picture


def _rgb(image: Any, camera: Camera) -> NDArray[np.uint8]:
    pixels = np.asarray(image, np.uint8).reshape(camera.height, camera.width, 4)
    return pixels[:, :, :3].copy()

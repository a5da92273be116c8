"""A camera: its position, its target and the size of its images."""

from dataclasses import dataclass

Vector3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
"""x, y, z, w."""
Colour = tuple[float, float, float, float]
"""Red, green, blue and opacity in [0, 1]."""


@dataclass(frozen=True)
class Camera:
    """A camera that looks at a point from a distance."""

    target: Vector3 = (0.0, 0.0, 0.3)
    """Point in the middle of the image, world frame [m]."""
    distance_m: float = 2.0
    """Distance from the target."""
    yaw_deg: float = 45.0
    """Turn about the vertical; 0 looks along +y."""
    pitch_deg: float = -20.0
    """Tilt; negative looks down."""
    fov_deg: float = 40.0
    """Vertical field of view."""
    width: int = 480
    """Width of the image [pixels]."""
    height: int = 320
    """Height of the image [pixels]."""

"""A range sensor: where its rays lie, and the row of distances that they measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any

from robots.frames import Components, rotate

MOST_RAYS = 256
"""Rays of one sensor; Bullet takes no more in one call."""


@dataclass(frozen=True)
class RangeSensor:
    """Rays in a plane of the robot's base that measure how far away the next body is.

    They see the robot's own links too: let them start outside of it.

    Raises:
        ValueError: If there are no rays or too many, or the distances do not rise.
    """

    n_rays: int = 16
    """Rays, evenly spread; the first points to the right end of the field of view."""
    max_m: float = 5.0
    """Distance that is read where there is nothing nearer."""
    min_m: float = 0.0
    """Distance from ``position`` at which the rays start."""
    view_rad: float = 2.0 * pi
    """Field of view around straight ahead; of a full turn the first ray points back."""
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Where the rays meet, in the frame of the base's centre of mass [m]."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.n_rays <= MOST_RAYS:
            raise ValueError(f"n_rays={self.n_rays} must be from 1 to {MOST_RAYS}. Set e.g. 16.")
        if not 0 <= self.min_m < self.max_m:
            raise ValueError(
                f"min_m={self.min_m} and max_m={self.max_m} must be at least 0 and rise. "
                "Set for example 0 and 5 [m]."
            )
        if not 0 < self.view_rad <= 2.0 * pi:
            raise ValueError(
                f"view_rad={self.view_rad} must be above 0 and at most a full turn, 2 pi [rad]."
            )

    @property
    def angles_rad(self) -> list[float]:
        """Direction of each ray in the frame of the base, 0 ahead, positive to the left."""
        is_round = self.view_rad > 2.0 * pi - 1e-9
        gap = self.view_rad / (self.n_rays if is_round else max(self.n_rays - 1, 1))
        first = 0.0 if self.n_rays == 1 else -0.5 * self.view_rad
        return [first + number * gap for number in range(self.n_rays)]

    @property
    def ends(self) -> list[tuple[Components, Components]]:
        """First and last point of each ray in the frame of the base [m]."""
        x, y, z = self.position
        rays = [(cos(angle), sin(angle)) for angle in self.angles_rad]
        near, far = self.min_m, self.max_m
        return [([x + near * a, y + near * b, z], [x + far * a, y + far * b, z]) for a, b in rays]


class RangeReader:
    """Reads a range sensor of one world."""

    def __init__(
        self,
        sensor: RangeSensor,
        read_pose: Callable[[], tuple[Any, Any]],
        cast: Callable[[Sequence[Any], Sequence[Any]], list[float]],
    ) -> None:
        """Set up the rays.

        Args:
            sensor: What to read.
            read_pose: Returns position [m] and quaternion of the base's centre of mass.
            cast: ``Simulation.ray_caster`` of the world.
        """
        self._sensor, self._read_pose, self._cast = sensor, read_pose, cast
        self._ends = sensor.ends

    def read(self) -> list[float]:
        """Return the distance that each ray measures [m]."""
        position, orientation = self._read_pose()
        x, y, z = position
        starts: list[Components] = []
        stops: list[Components] = []
        for ends in self._ends:
            for points, end in zip((starts, stops), ends, strict=True):
                a, b, c = rotate(orientation, end)
                points.append([x + a, y + b, z + c])
        near, length = self._sensor.min_m, self._sensor.max_m - self._sensor.min_m
        return [near + length * share for share in self._cast(starts, stops)]

"""Uneven ground: its heights, and where an episode puts it under the robot."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.camera import Quaternion, Vector3
from robots.distributions import known_name, read_number
from robots.simulation import Simulation

REACH_M = 12.0
"""How far a robot may go from where it starts without coming to the edge."""
START_M = 0.5
"""Radius around the start in which no point of the ground lies above height 0."""
MOST_POINTS = 512
"""Points along an edge, above which loading takes seconds."""


class GroundPose(NamedTuple):
    """Where an episode puts the ground."""

    position: Vector3
    """World position of the middle of the field [m]."""
    orientation: Quaternion
    """Turn about the vertical, quaternion (x, y, z, w)."""


@dataclass(frozen=True)
class TerrainSpec:
    """A square field of heights that are drawn once, from its own seed.

    Each episode draws which place of it lies under the start, and how it is turned.

    Raises:
        ValueError: If a number is out of range.
    """

    roughness_m: float = 0.05
    """Difference between the lowest and the highest point."""
    cell_m: float = 0.2
    """Distance between neighbouring points, whose heights are drawn independently."""
    size_m: float = 40.0
    """Edge of the field."""
    seed: int = 0
    """Seed of the heights."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, low in (("roughness_m", 0.0), ("cell_m", 0.02), ("size_m", 2.0 * REACH_M)):
            read_number(f"terrain.{name}", getattr(self, name), low)
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(
                f"terrain.seed={self.seed!r} must be a whole number, at least 0. Set for example 0."
            )
        if self.n_points > MOST_POINTS:
            raise ValueError(
                f"terrain.size_m={self.size_m} with cell_m={self.cell_m} has {self.n_points} "
                f"points an edge, above {MOST_POINTS}. Make it smaller or the cells wider."
            )

    @classmethod
    def read(cls, value: object) -> "TerrainSpec":
        """Return the terrain that an environment's option states.

        Raises:
            ValueError: If it is no mapping, or has an unknown or wrong entry.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"terrain={value!r} must be a mapping, as {{roughness_m: 0.05}}.")
        for name in value:
            known_name("terrain", name, [field.name for field in fields(cls)])
        return cls(**value)

    @property
    def n_points(self) -> int:
        """Points along an edge."""
        return round(self.size_m / self.cell_m) + 1

    def heights(self) -> NDArray[np.float64]:
        """Return the heights [m] from 0 to ``roughness_m``, rows along y, shape (n, n)."""
        rng = np.random.default_rng(self.seed)
        unit = rng.random((self.n_points, self.n_points), np.float32).astype(np.float64)
        # An engine puts the body's origin midway between the lowest and the highest point.
        unit.flat[:2] = 0.0, 1.0
        return self.roughness_m * unit


class Terrain:
    """A ``TerrainSpec`` loaded into a simulation.

    Attributes:
        body: Id of the ground's body.
        heights: Heights of the points [m], rows along y, shape (n, n).
    """

    def __init__(self, simulation: Simulation, spec: TerrainSpec) -> None:
        """Load the field, with its highest points at height 0."""
        self._spec = spec
        self.heights = spec.heights()
        self.body = simulation.add_heights(self.heights, spec.cell_m, (0.62, 0.66, 0.60, 1.0))
        simulation.reset_base(self.body, *self.pose_of(0.0, 0.0, 0.0))

    def draw(self, rng: np.random.Generator) -> GroundPose:
        """Draw which place of the field lies under the start, and how the field is turned."""
        room = 0.5 * self._spec.size_m - REACH_M
        x, y = rng.uniform(-room, room, 2)
        return self.pose_of(x, y, rng.uniform(-np.pi, np.pi))

    def pose_of(self, x: float, y: float, turn_rad: float) -> GroundPose:
        """Return the pose in which a place of the field lies at the origin.

        Args:
            x: Where it is, in the frame of the field, whose origin is in its middle [m].
            y: The same across.
            turn_rad: Turn of the field.
        """
        spec = self._spec
        cosine, sine = float(np.cos(turn_rad)), float(np.sin(turn_rad))
        middle = (spec.n_points - 1) / 2
        along = (np.arange(spec.n_points) - middle) * spec.cell_m
        near_x, near_y = (np.abs(along - at) <= START_M + spec.cell_m for at in (x, y))
        highest = self.heights[np.ix_(near_y, near_x)].max()
        half = 0.5 * turn_rad
        return GroundPose(
            (
                float(sine * y - cosine * x),
                float(-sine * x - cosine * y),
                float(0.5 * spec.roughness_m - highest),
            ),
            (0.0, 0.0, float(np.sin(half)), float(np.cos(half))),
        )

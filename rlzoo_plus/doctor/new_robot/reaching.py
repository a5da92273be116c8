"""Finds the end of an arm, points that it can reach, and a circle that it can follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
from rlzoo_plus.errors import ConfigError
from robots.camera import Vector3
from robots.simulation import Simulation

_N_GOALS = 64
_MOST_TRIED = 5000
# A joint without limits is drawn this far to either side of rest [rad or m].
_ENDLESS_REACH = 1.5
# Shortest chain of joints that brings its end to points of a volume or a plane.
_FEWEST_JOINTS = 2
# Joints of what is an arm without being called one, and their share of all that a robot has.
_JOINTS_OF_AN_ARM, _SHARE_OF_AN_ARM = 3, 0.5
_LOWEST_M = 0.05
# Radii as shares of the extent of the points, points that are tried on a circle, and how far off
# the tip may be, as a share of the radius.
_RADII, _N_TRIED, _OFF = (0.2, 0.15, 0.1, 0.06), 16, 0.05
# Of the inverse kinematics: steps, and what is added to a square of lengths [m^2].
_ITERATIONS, _STEP, _DAMPING = 20, 1e-3, 1e-3
_PLANES: tuple[tuple[Vector3, Vector3], ...] = (
    ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
)


@dataclass(frozen=True)
class Reach:
    """The end of an arm, and where it can be."""

    tip: str  # Name of the link
    goals: list[Vector3]  # Points that it can reach [m]

    @property
    def tolerance_m(self) -> float:
        """How near counts as reached: a twentieth of the extent of the points."""
        return _rounded(max(0.05 * self.extent_m, 0.002))

    @property
    def extent_m(self) -> float:
        """Greatest extent of the points along an axis."""
        return float(np.ptp(self.goals, axis=0).max())


@dataclass(frozen=True)
class Circle:
    """The end of an arm, and a circle on which it can be anywhere."""

    tip: str
    centre: Vector3  # [m]
    radius_m: float
    sides: tuple[Vector3, Vector3]  # Two directions that span its plane

    @property
    def tolerance_m(self) -> float:
        """How near counts as reached: a fifth of the radius."""
        return _rounded(0.2 * self.radius_m)

    def points(self) -> NDArray[np.float64]:
        """Return points all around [m], shape (n, 3)."""
        angles = np.linspace(0.0, 2.0 * np.pi, _N_TRIED, endpoint=False)
        phase = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        points: NDArray[np.float64] = self.radius_m * (phase @ np.array(self.sides))
        return points + self.centre


def is_arm(file: ModelFile, robot: RobotSurvey) -> bool:
    """Return whether most joints of a robot lie between its base and one end."""
    with file.world() as simulation:
        longest = _Arm(simulation, file, robot).n_joints
    return longest >= max(_JOINTS_OF_AN_ARM, _SHARE_OF_AN_ARM * len(robot.joints))


def find_reach(file: ModelFile, robot: RobotSurvey) -> Reach:
    """Return the end of the longest chain of joints, and points that it reaches.

    Raises:
        ConfigError: No chain has two joints, or its end does not move above the ground.
    """
    return _find(file, robot, "reach")[0]


def find_circle(file: ModelFile, robot: RobotSurvey) -> Circle:
    """Return the end of the longest chain of joints, and a circle that it can follow.

    Raises:
        ConfigError: As `find_reach`, or it can follow none.
    """
    reach, circle = _find(file, robot, "track")
    if circle is None:
        raise ConfigError(
            f"--task track: the end of the longest chain, {reach.tip!r}, can follow no circle "
            "above the ground. Use --task reach."
        )
    return circle


def _find(file: ModelFile, robot: RobotSurvey, task: str) -> tuple[Reach, Circle | None]:
    with file.world() as simulation:
        arm = _Arm(simulation, file, robot)
        reach = arm.reach(task)
        circles = _circles(reach) if task == "track" else iter(())
        return reach, next((circle for circle in circles if arm.follows(circle)), None)


def _circles(reach: Reach) -> Iterator[Circle]:
    """Yield circles about points that the tip reaches, large ones in front first."""
    centres = sorted(reach.goals, key=lambda point: abs(point[1]) - point[0])[:_N_TRIED]
    for share, sides, centre in product(_RADII, _PLANES, centres):
        yield Circle(reach.tip, centre, _rounded(share * reach.extent_m), sides)


class _Arm:
    """The longest chain of joints of a robot in a simulation."""

    def __init__(self, simulation: Simulation, file: ModelFile, robot: RobotSurvey) -> None:
        self._simulation, self._joints = simulation, robot.joints
        self._body = file.load(simulation)
        _, *places = simulation.link_places(self._body)
        driven = {joint.index for joint in robot.joints}
        depth = {-1: 0}
        for index, place in enumerate(places):
            # What no action moves by itself, such as a finger, is no tip.
            if place.parent in depth and place.joint not in {*file.undriven, *file.mimic}:
                depth[index] = depth[place.parent] + (index in driven)
        self.n_joints = max(depth.values())
        tip = max(index for index, joints in depth.items() if joints == self.n_joints)
        self._name = places[tip].name if tip >= 0 else ""
        self._read = simulation.link_reader(self._body, [max(tip, 0)])
        self._indices = [joint.index for joint in robot.joints]
        self._limits = np.array(
            [
                (joint.rest - _ENDLESS_REACH, joint.rest + _ENDLESS_REACH)
                if joint.endless
                else (joint.lower, joint.upper)
                for joint in robot.joints
            ]
        ).T

    def reach(self, task: str) -> Reach:
        """Return the tip, and where it is in postures within the limits."""
        if self.n_joints < _FEWEST_JOINTS:
            raise ConfigError(
                f"--task {task}: the longest chain of this robot has {self.n_joints} joint, so it "
                "has no arm. Use --task posture."
            )
        rng, goals = np.random.default_rng(0), list[Vector3]()
        for _ in range(_MOST_TRIED):
            x, y, z = self._tip_at(rng.uniform(*self._limits)).round(3).tolist()
            if z > _LOWEST_M:
                goals.append((x, y, z))
            if len(goals) == _N_GOALS:
                break
        found = Reach(self._name, goals)
        if len(goals) < _N_GOALS or found.extent_m < 0.01:
            raise ConfigError(
                f"--task {task}: the end of the longest chain, {self._name!r}, reaches too few "
                "points above the ground. Use --task posture."
            )
        return found

    def follows(self, circle: Circle) -> bool:
        """Return whether the tip can be at points all around, each near the one before."""
        posture = np.array([joint.rest for joint in self._joints])
        for point in circle.points():
            posture, off_m = self._brought(posture, point)
            if point[2] <= _LOWEST_M or off_m > _OFF * circle.radius_m:
                return False
        return True

    def _brought(
        self, posture: NDArray[np.float64], point: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float]:
        """Return a posture within the limits that brings the tip to a point, and how near [m]."""
        for _ in range(_ITERATIONS):
            here = self._tip_at(posture)
            away = point - here
            moved = [self._tip_at(posture + step) for step in _STEP * np.eye(len(posture))]
            slope = (np.array(moved) - here).T / _STEP
            # Damped least squares, which goes nowhere far where the arm is stretched.
            change = slope.T @ np.linalg.solve(slope @ slope.T + _DAMPING * np.eye(3), away)
            posture = np.clip(posture + change, *self._limits)
        return posture, float(np.linalg.norm(self._tip_at(posture) - point))

    def _tip_at(self, posture: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take a posture; return where the tip then is [m]."""
        simulation, indices = self._simulation, self._indices
        simulation.reset_joints(self._body, indices, posture.tolist(), [0.0] * len(indices))
        return np.array(self._read()[0])


def _rounded(length_m: float) -> float:
    return float(f"{length_m:.1g}")

"""Finds the end of an arm, and points that it can reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pybullet

from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
from rlzoo_plus.doctor.new_robot.urdf import UrdfFile
from rlzoo_plus.errors import ConfigError
from robots.quiet import native_output_hidden
from robots.simulation import Simulation

_N_GOALS = 64
_MOST_TRIED = 5000
# A joint without limits is drawn this far to either side of rest [rad or m].
_ENDLESS_REACH = 1.5
# Shortest chain of joints that brings its end to points of a volume or a plane.
_FEWEST_JOINTS = 2
_LOWEST_M = 0.05


@dataclass(frozen=True)
class Reach:
    """The end of an arm, and where it can be."""

    tip: str  # Name of the link
    goals: list[tuple[float, float, float]]  # Points that it can reach [m]

    @property
    def tolerance_m(self) -> float:
        """How near counts as reached: a twentieth of the extent of the points."""
        return float(f"{max(0.05 * float(np.ptp(self.goals, axis=0).max()), 0.002):.1g}")


def find_reach(urdf: UrdfFile, robot: RobotSurvey) -> Reach:
    """Return the end of the longest chain of joints, and points that it reaches.

    Raises:
        ConfigError: No chain has two joints, or its end does not move above the ground.
    """
    with native_output_hidden():
        simulation = Simulation()
        try:
            body = simulation.load_urdf(str(urdf.path), position=(0, 0, 0), fixed_base=True)
            return _find(simulation, body, robot)
        finally:
            simulation.close()


def _find(simulation: Simulation, body: int, robot: RobotSurvey) -> Reach:
    bind = simulation.bind
    infos = [bind(pybullet.getJointInfo)(body, i) for i in range(bind(pybullet.getNumJoints)(body))]
    driven = {joint.index for joint in robot.joints}
    depth = {-1: 0}
    for info in infos:
        depth[info[0]] = depth[info[16]] + (info[0] in driven)
    deepest = max(depth.values())
    if deepest < _FEWEST_JOINTS:
        raise ConfigError(
            f"--task reach: the longest chain of this robot has {deepest} joint, so it has no arm. "
            "Use --task posture."
        )
    tip = max(index for index, joints in depth.items() if joints == deepest)
    indices = [joint.index for joint in robot.joints]
    limits = [
        (joint.rest - _ENDLESS_REACH, joint.rest + _ENDLESS_REACH)
        if joint.endless
        else (joint.lower, joint.upper)
        for joint in robot.joints
    ]
    low, high = np.array(limits).T
    rng, goals = np.random.default_rng(0), list[tuple[float, float, float]]()
    for _ in range(_MOST_TRIED):
        positions = rng.uniform(low, high).tolist()
        simulation.reset_joints(body, indices, positions, [0.0] * len(indices))
        state = bind(pybullet.getLinkState)(body, tip, computeForwardKinematics=1)
        x, y, z = (round(value, 3) for value in state[4])
        if z > _LOWEST_M:
            goals.append((x, y, z))
        if len(goals) == _N_GOALS:
            break
    name = infos[tip][12].decode()
    if len(goals) < _N_GOALS or np.ptp(goals, axis=0).max() < 0.01:
        raise ConfigError(
            f"--task reach: the end of the longest chain, {name!r}, reaches too few points above "
            "the ground. Use --task posture."
        )
    return Reach(name, goals)

"""Finds what of a robot can fall over: a pole on a hinge without a motor, or the robot itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pybullet

from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
from rlzoo_plus.doctor.new_robot.urdf import UrdfFile
from rlzoo_plus.errors import ConfigError
from robots.camera import Quaternion, Vector3
from robots.engines.bullet.simulation import BulletSimulation
from robots.frames import rotate, rotate_back
from robots.quiet import native_output_hidden

# A hinge's axis is level, and the center of mass of what hangs on it above, to within this sine.
_LEVEL, _ABOVE = 0.3, 0.5
_LET_GO_S = 3.0
_FALLEN_COSINE = 0.5
# Share of its height; a robot whose base has sunk that far lies on the ground.
SUNK_SHARE = 0.4


@dataclass(frozen=True)
class Pole:
    """Links that nothing but the motion of the others keeps upright."""

    link: str  # The last of them
    orientation: Quaternion  # Of its frame, in the rest position
    hinges: tuple[int, ...]  # Indices of the joints that swing


def find_fall(urdf: UrdfFile, robot: RobotSurvey, *, is_free: bool) -> Pole | None:
    """Return the pole of a robot with a fixed base; None for one that can fall itself.

    Raises:
        ConfigError: Nothing of it can fall over.
    """
    with native_output_hidden():
        simulation = BulletSimulation()
        try:
            simulation.load_urdf("plane.urdf")
            if is_free:
                _check_that_it_falls(simulation, urdf, robot)
                return None
            pole = _pole(simulation, urdf, robot)
        finally:
            simulation.close()
    if pole is None:
        raise ConfigError(
            "--task balance: nothing of this robot can fall over: its base is fixed, and no pole "
            "stands on a hinge without limits and effort. Use --task posture, or --base free."
        )
    return pole


def _pole(simulation: BulletSimulation, urdf: UrdfFile, robot: RobotSurvey) -> Pole | None:
    body = _load(simulation, urdf, robot, is_free=False)
    bind, masses = simulation.bind, simulation.link_dynamics(body)
    infos = [bind(pybullet.getJointInfo)(body, i) for i in range(bind(pybullet.getNumJoints)(body))]
    # Of each link, those that hang on it and itself.
    below: dict[int, list[int]] = {info[0]: [info[0]] for info in infos}
    for info in reversed(infos):
        if info[16] >= 0:
            below[info[16]] += below[info[0]]
    states = {
        link: bind(pybullet.getLinkState)(body, link, computeForwardKinematics=1) for link in below
    }
    hinges: list[int] = []
    for joint in reversed(robot.joints):
        links = below[joint.index]
        beyond = {other.index for other in robot.joints} & set(links) - {joint.index}
        if not joint.endless or joint.slides or joint.max_force > 0 or beyond - set(hinges):
            continue
        weights = [masses[link].mass_kg for link in links]
        centre = np.average([states[link][0] for link in links], axis=0, weights=weights)
        lever = centre - np.array(states[joint.index][4])
        # PyBullet gives the axis in the inertial frame of the link.
        axis = rotate(list(states[joint.index][1]), list(infos[joint.index][13]))
        if abs(axis[2]) <= _LEVEL and lever[2] > _ABOVE * np.linalg.norm(lever):
            hinges.append(joint.index)
    if not hinges or len(hinges) == len(robot.joints):
        return None
    last = max(hinges)
    return Pole(infos[last][12].decode(), states[last][5], tuple(sorted(hinges)))


def _check_that_it_falls(simulation: BulletSimulation, urdf: UrdfFile, robot: RobotSurvey) -> None:
    """Refuse a robot that stays up when all its motors are let go."""
    body = _load(simulation, urdf, robot, is_free=True)
    read = simulation.bind(pybullet.getBasePositionAndOrientation)
    height, up = robot.height_m or 0.0, rotate_back(list(robot.orientation), [0.0, 0.0, 1.0])
    for _ in range(round(_LET_GO_S / simulation.step_s)):
        simulation.step()
        position, orientation = read(body)
        has_sunk = position[2] < height - SUNK_SHARE * robot.size_m[2]
        if has_sunk or rotate(list(orientation), up)[2] < _FALLEN_COSINE:
            return
    raise ConfigError(
        "--task balance: nothing of this robot can fall over: it stands with all motors let go. "
        "Use --task walk."
    )


def _load(
    simulation: BulletSimulation, urdf: UrdfFile, robot: RobotSurvey, *, is_free: bool
) -> int:
    """Load a robot in its rest position, where its task begins."""
    place: Vector3 = (0.0, 0.0, 0.0)
    body = simulation.load_urdf(str(urdf.path), position=place, fixed_base=not is_free)
    indices = [joint.index for joint in robot.joints]
    rest = [joint.rest for joint in robot.joints]
    simulation.reset_joints(body, indices, rest, [0.0] * len(indices))
    if is_free:
        # A nudge, without which a pole would stand on its tip for ever.
        start = (0.0, 0.0, (robot.height_m or 0.0) + 0.01)
        simulation.reset_base(body, start, robot.orientation, (0.1, 0.0, 0.0), (0.1, 0.3, 0.0))
    return body

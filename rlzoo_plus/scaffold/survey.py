"""A robot as PyBullet loads it: its joints, its mass, and its height above the ground."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pybullet

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.scaffold.urdf import UrdfFile
from robots.simulation import Simulation

# Prefix of PyBullet's messages: the function, file and line in its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")

# Above the ground, so that the distance can be measured.
_ALOFT_M = 20.0
# A wheel or a leg is a branch; two may still be the arms of a fixed torso.
_FEWEST_BRANCHES_OF_A_FREE_BASE = 3
_MOST_NAMED = 5
_FIXED_ROOTS = ("world", "map")


@dataclass(frozen=True)
class JointSurvey:
    """A movable joint.

    Attributes:
        index: Its index in the body.
        name: Its name in the URDF.
        slides: Whether it is prismatic; its unit is then m and N, otherwise rad and N m.
        endless: Whether it has no limits.
        lower: Lower limit.
        upper: Upper limit.
        max_force: Effort limit; 0 where the URDF states none.
        max_velocity: Velocity limit; 0 where the URDF states none.
        rest: Rest position.
    """

    index: int
    name: str
    slides: bool
    endless: bool
    lower: float
    upper: float
    max_force: float
    max_velocity: float
    rest: float


@dataclass(frozen=True)
class RobotSurvey:
    """What must be known about a robot to write an environment for it.

    Attributes:
        joints: Its movable joints, in the order of the URDF.
        mass_kg: Mass of all links.
        branches: Number of joints on its base.
        stands_free: Whether its base is probably not fixed.
        height_m: Height of the base's center of mass when the lowest point touches the ground;
            None without collision shapes.
        orientation: Orientation of the base's principal axes when the URDF's axes are those of
            the world, quaternion (x, y, z, w).
        middle: Middle of the robot, relative to the origin of its base [m].
        size_m: Lengths of its edges.
        notes: What the user should know.
    """

    joints: list[JointSurvey]
    mass_kg: float
    branches: int
    stands_free: bool
    height_m: float | None
    orientation: tuple[float, float, float, float]
    middle: tuple[float, float, float]
    size_m: tuple[float, float, float]
    notes: list[str] = field(default_factory=list)


def survey(urdf: UrdfFile, rest: Sequence[str] = ()) -> RobotSurvey:
    """Load a robot and measure it.

    Args:
        urdf: The file.
        rest: Rest positions as `PATTERN=VALUE` [rad or m]; joints that no pattern matches rest at
            0, or in the middle of their range if 0 is outside of it.

    Raises:
        ConfigError: PyBullet cannot load it, or a rest position is wrong.
    """
    with native_output_hidden():
        simulation = Simulation()
        try:
            ground = simulation.load_urdf("plane.urdf")
            body = _load(simulation, urdf)
            joints = _at_rest(_joints(simulation, body, urdf), rest)
            simulation.reset_joints(
                body,
                [joint.index for joint in joints],
                [joint.rest for joint in joints],
                [0.0] * len(joints),
            )
            return _measure(simulation, body, ground, urdf, joints)
        finally:
            simulation.close()


def _load(simulation: Simulation, urdf: UrdfFile) -> int:
    with tempfile.TemporaryFile() as output:
        try:
            with native_output_hidden(output.fileno()):
                path = str(urdf.path)
                return simulation.load_urdf(path, position=(0, 0, _ALOFT_M), fixed_base=False)
        except FileNotFoundError:
            output.seek(0)
            text = _HEAD.sub("\n", output.read().decode(errors="replace"))
    lines = dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())
    reason = printable("; ".join(lines) or "it does not say why")
    raise ConfigError(
        f"--urdf {urdf.path}: PyBullet cannot load it: {reason}. Fix the file; missing meshes "
        "are looked for beside it."
    )


def _joints(simulation: Simulation, body: int, urdf: UrdfFile) -> list[JointSurvey]:
    """Return the movable joints, each at rest at 0 or in the middle of its range."""
    joints = []
    for joint in simulation.movable_joints(body):
        kind = simulation.bind(pybullet.getJointInfo)(body, joint.index)[2]
        endless = joint.name in urdf.endless or not joint.lower < joint.upper
        has_zero = endless or joint.lower <= 0 <= joint.upper
        joints.append(
            JointSurvey(
                index=joint.index,
                name=joint.name,
                slides=kind == pybullet.JOINT_PRISMATIC,
                endless=endless,
                lower=joint.lower,
                upper=joint.upper,
                max_force=joint.max_force,
                max_velocity=joint.max_velocity,
                rest=0.0 if has_zero else (joint.lower + joint.upper) / 2,
            )
        )
    return joints


def _at_rest(joints: list[JointSurvey], given: Sequence[str]) -> list[JointSurvey]:
    """Return the joints at the rest positions that the user wants."""
    for text in given:
        pattern, _, value = text.rpartition("=")
        try:
            rest, matches = float(value), re.compile(pattern).fullmatch
        except (ValueError, re.error) as error:
            raise ConfigError(
                f"--rest {text} is not PATTERN=VALUE. Write for example --rest 'knee_.*=-1.2'."
            ) from error
        if not any(matches(joint.name) for joint in joints):
            names = ", ".join(joint.name for joint in joints)
            raise ConfigError(f"--rest {text} matches no joint. Choose among: {names}.")
        for joint in joints:
            if matches(joint.name) and not joint.endless and not joint.lower <= rest <= joint.upper:
                raise ConfigError(
                    f"--rest {text}: {joint.name} moves from {joint.lower:g} to {joint.upper:g}. "
                    "Choose a value in that range."
                )
        joints = [replace(joint, rest=rest) if matches(joint.name) else joint for joint in joints]
    return joints


def _measure(
    simulation: Simulation, body: int, ground: int, urdf: UrdfFile, joints: list[JointSurvey]
) -> RobotSurvey:
    bind = simulation.bind
    bind(pybullet.performCollisionDetection)()
    position, orientation = bind(pybullet.getBasePositionAndOrientation)(body)
    distances = [point[8] for point in bind(pybullet.getClosestPoints)(body, ground, 2 * _ALOFT_M)]
    n_joints = bind(pybullet.getNumJoints)(body)
    branches = _branches([bind(pybullet.getJointInfo)(body, i) for i in range(n_joints)])
    boxes = np.array([bind(pybullet.getAABB)(body, link) for link in range(-1, n_joints)])
    lowest, highest = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    root = bind(pybullet.getBodyInfo)(body)[0].decode()
    mass = sum(link.mass_kg for link in simulation.link_dynamics(body).values())
    if mass <= 0:
        raise ConfigError(
            f"--urdf {urdf.path}: all links together weigh {mass:g} kg. State the <mass> of each."
        )
    return RobotSurvey(
        joints=joints,
        mass_kg=mass,
        branches=branches,
        stands_free=branches >= _FEWEST_BRANCHES_OF_A_FREE_BASE and root not in _FIXED_ROOTS,
        height_m=position[2] - min(distances) if distances else None,
        orientation=orientation,
        middle=tuple(((lowest + highest) / 2 - (0, 0, _ALOFT_M)).tolist()),
        size_m=tuple((highest - lowest).tolist()),
        notes=_notes(urdf, joints, can_touch=bool(distances)),
    )


def _branches(infos: Sequence[Sequence[Any]]) -> int:
    """Return the number of movable joints on the base, or on links fixed to it."""
    welded = {-1}
    for info in infos:
        if info[16] in welded and info[2] == pybullet.JOINT_FIXED:
            welded.add(info[0])
    return sum(info[16] in welded and info[2] != pybullet.JOINT_FIXED for info in infos)


def _notes(urdf: UrdfFile, joints: list[JointSurvey], *, can_touch: bool) -> list[str]:
    notes = []
    if urdf.without_mass:
        notes.append(
            f"{len(urdf.without_mass)} links state no <inertial>, and PyBullet makes each 1 kg "
            f"heavy: {_some(urdf.without_mass)}"
        )
    weak = [joint.name for joint in joints if joint.max_force <= 0]
    if weak:
        notes.append(
            f"{len(weak)} joints state no effort limit; the forces in the file are guessed from "
            f"the robot's weight: {_some(weak)}"
        )
    if not can_touch:
        notes.append("no link has a <collision> shape: a free robot falls through the ground")
    return notes


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return printable(", ".join(names[:_MOST_NAMED])) + more

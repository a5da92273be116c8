"""A robot as PyBullet loads it: its joints, its weight, and how it stands on the ground."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import pybullet

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.scaffold.urdf import UrdfFile
from robots.simulation import Simulation

# The head of each of PyBullet's messages: the file and line of its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")


class NativeOutput:
    """Takes the place of the process's output and errors for a while; not for several threads.

    Attributes:
        lines: What was printed, each line once, complete after the end.
    """

    def __init__(self) -> None:
        """Open the file that keeps the output."""
        self.lines: list[str] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._saved: dict[int, int] = {}

    def __enter__(self) -> NativeOutput:
        """Begin to keep."""
        self._saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in self._saved:
            os.dup2(self._file.fileno(), descriptor)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the output back, and read what was kept."""
        # The text may still be in the buffer of the C library.
        ctypes.CDLL(None).fflush(None)
        for descriptor, copy in self._saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)
        self._file.seek(0)
        text = self._file.read().decode(errors="replace")
        self._file.close()
        parts = (part.strip() for part in _HEAD.sub("\n", text).splitlines())
        self.lines = list(dict.fromkeys(part for part in parts if part))


Triple = tuple[float, float, float]

# Far from the ground, for its distance to be measured.
_ALOFT_M = 20.0
# A wheel or a leg is a branch; two may still be the arms of a torso that is bolted down.
_FEWEST_BRANCHES_OF_A_FREE_BASE = 3
_MOST_NAMED = 5
_ROOTS_BOLTED_DOWN = ("world", "map")


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
    """What is to be known of a robot before an environment can be written for it.

    Attributes:
        joints: Its movable joints, in the order of the URDF.
        mass_kg: Of all links.
        branches: Joints that hang on its base.
        stands_free: Whether it looks like a robot that is not bolted down.
        height_m: Of the base's centre of mass when the lowest point touches the ground; None
            where nothing of the robot can touch.
        orientation: Of the base's principal axes when the URDF's axes are those of the world,
            quaternion (x, y, z, w).
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
    middle: Triple
    size_m: Triple
    notes: list[str] = field(default_factory=list)


def survey(urdf: UrdfFile, rest: Sequence[str] = ()) -> RobotSurvey:
    """Load a robot and look at it.

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
    with NativeOutput() as output:
        try:
            return simulation.load_urdf(str(urdf.path), position=(0, 0, _ALOFT_M), fixed_base=False)
        except FileNotFoundError:
            pass
    reason = printable("; ".join(output.lines) or "it does not say why")
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
    infos = [bind(pybullet.getJointInfo)(body, i) for i in range(_count(simulation, body))]
    branches = _branches(infos)
    middle, size = _extent(simulation, body, len(infos))
    root = bind(pybullet.getBodyInfo)(body)[0].decode()
    mass = sum(link.mass_kg for link in simulation.link_dynamics(body).values())
    if mass <= 0:
        raise ConfigError(
            f"--urdf {urdf.path}: all links together weigh {mass:g} kg. State the <mass> of each."
        )
    notes = _notes(urdf, joints)
    if not distances:
        notes.append("no link has a <collision> shape: a free robot falls through the ground")
    return RobotSurvey(
        joints=joints,
        mass_kg=mass,
        branches=branches,
        stands_free=(
            branches >= _FEWEST_BRANCHES_OF_A_FREE_BASE and root not in _ROOTS_BOLTED_DOWN
        ),
        height_m=position[2] - min(distances) if distances else None,
        orientation=orientation,
        middle=middle,
        size_m=size,
        notes=notes,
    )


def _count(simulation: Simulation, body: int) -> int:
    count: int = simulation.bind(pybullet.getNumJoints)(body)
    return count


def _branches(infos: Sequence[Sequence[Any]]) -> int:
    """Return how many movable joints hang on the base, or on what is welded to it."""
    welded = {-1}
    count = 0
    for info in infos:
        if info[16] in welded:
            if info[2] == pybullet.JOINT_FIXED:
                welded.add(info[0])
            else:
                count += 1
    return count


def _extent(simulation: Simulation, body: int, n_links: int) -> tuple[Triple, Triple]:
    """Return the middle of all links, relative to the base's origin, and the edges [m]."""
    boxes = [simulation.bind(pybullet.getAABB)(body, link) for link in range(-1, n_links)]
    edges = [
        (min(box[0][axis] for box in boxes), max(box[1][axis] for box in boxes))
        for axis in range(3)
    ]
    x, y, z = ((low + high) / 2 for low, high in edges)
    length, width, height = (high - low for low, high in edges)
    return (x, y, z - _ALOFT_M), (length, width, height)


def _notes(urdf: UrdfFile, joints: list[JointSurvey]) -> list[str]:
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
    return notes


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return printable(", ".join(names[:_MOST_NAMED])) + more

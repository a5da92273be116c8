"""Reads a URDF: its text, and the robot as PyBullet loads it."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pybullet

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, closest
from robots.quiet import native_output_hidden
from robots.simulation import JointInfo, Simulation

# Prefix of PyBullet's messages: the function, file and line in its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")

# Above the ground, so that the distance can be measured.
_ALOFT_M = 20.0
# A wheel or a leg is a branch; two may still be the arms of a fixed torso.
_FEWEST_BRANCHES_OF_A_FREE_BASE = 3
_MOST_NAMED = 5
_FIXED_ROOTS = ("world", "map")
# Root elements of other formats for robots.
_OTHER_FORMATS = {"mujoco": "MJCF", "sdf": "SDF", "COLLADA": "COLLADA"}
_MOVABLE = ("revolute", "continuous", "prismatic")


@dataclass(frozen=True)
class UrdfFile:
    """The text of a URDF.

    Attributes:
        path: Its path.
        name: Its path inside `pybullet_data`, None for a file of the user.
        endless: Names of the joints without limits.
        without_mass: Names of the links for which PyBullet assumes 1 kg.
    """

    path: Path
    name: str | None
    endless: frozenset[str]
    without_mass: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JointSurvey(JointInfo):
    """A movable joint.

    Attributes:
        slides: Whether it is prismatic; its unit is then m and N, otherwise rad and N m.
        endless: Whether it has no limits.
        rest: Rest position.
    """

    slides: bool
    endless: bool
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


def read_urdf(given: str) -> UrdfFile:
    """Find a URDF and read it as text.

    Args:
        given: A path, absolute or relative to here or to `pybullet_data`.

    Raises:
        ConfigError: It is not there, is no URDF, or has no joint that moves.
    """
    path, name = _find(given)
    root = _parse(path)
    # Their names come again in <transmission> and <gazebo>.
    kinds = {joint.get("name", ""): joint.get("type", "") for joint in root.findall("joint")}
    if not any(kind in _MOVABLE for kind in kinds.values()):
        raise ConfigError(
            f"--urdf {given} has no joint that moves: none of its {len(kinds)} joints is "
            f"{', '.join(_MOVABLE[:-1])} or {_MOVABLE[-1]}. Give the URDF of a robot."
        )
    _check_tree(root, given)
    links = [link for link in root.findall("link") if link.find("inertial") is None]
    return UrdfFile(
        path=path,
        name=name,
        endless=frozenset(joint for joint, kind in kinds.items() if kind == "continuous"),
        without_mass=tuple(link.get("name", "") for link in links),
    )


def _check_tree(root: ElementTree.Element, given: str) -> None:
    """Refuse names and links that PyBullet crashes on: the links must make one tree."""
    links = [link.get("name", "") for link in root.findall("link")]
    joints = {joint: joint.get("name", "") for joint in root.findall("joint")}
    for name in [*joints.values(), *links]:
        if not name.isprintable():
            raise ConfigError(
                f"--urdf {given}: the name {printable(name)} holds control characters. Take them "
                "out."
            )
    for what, names in (("joints", [*joints.values()]), ("links", links)):
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ConfigError(
                f"--urdf {given} has two {what} called {printable(twice)!r}. Rename one of them."
            )
    parents: dict[str, str] = {}
    for joint, name in joints.items():
        ends = [joint.find(end) for end in ("parent", "child")]
        parent, child = ("" if end is None else end.get("link", "") for end in ends)
        unknown = next((link for link in (parent, child) if link not in links), None)
        if unknown is not None:
            raise ConfigError(
                f"--urdf {given}: joint {printable(name)} names the link {printable(unknown)!r}, "
                "which is not there. Fix its <parent> or <child>."
            )
        if child in parents:
            raise ConfigError(
                f"--urdf {given}: link {printable(child)} hangs on two joints, one of them "
                f"{printable(name)}. A URDF is a tree: take one away, and close the loop in Python."
            )
        parents[child] = parent
    roots = [link for link in links if link not in parents]
    if len(roots) != 1:
        found = printable(", ".join(roots)) or "none"
        raise ConfigError(
            f"--urdf {given} must have one link without a parent, and has: {found}. Join the "
            "parts, or take what is too much away."
        )
    below = set(roots)
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    lost = next((link for link in links if link not in below), None)
    if lost is not None:
        raise ConfigError(
            f"--urdf {given}: link {printable(lost)} hangs on itself by a ring of joints. Fix "
            "their <parent> and <child>."
        )


def _find(given: str) -> tuple[Path, str | None]:
    import pybullet_data

    path = Path(given).expanduser()
    shipped = Path(pybullet_data.getDataPath())
    if path.is_file():
        inside = path.resolve().is_relative_to(shipped.resolve())
        name = path.resolve().relative_to(shipped.resolve()).as_posix() if inside else None
        return path.resolve(), name
    if not path.is_absolute() and (shipped / path).is_file():
        return shipped / path, path.as_posix()
    known = [file.relative_to(shipped).as_posix() for file in shipped.rglob("*.urdf")]
    near = closest(given, known)
    hint = f" Did you mean {near!r} of pybullet_data?" if near else ""
    raise ConfigError(
        f"--urdf {given}: there is no such file, neither here nor in pybullet_data.{hint} "
        "Give the path of a URDF."
    )


def _parse(path: Path) -> ElementTree.Element:
    try:
        # PyBullet reads a file between empty lines or zeros, which XML does not allow.
        root = ElementTree.fromstring(path.read_bytes().strip(b"\0\r\n\t "))
    except (ElementTree.ParseError, OSError, ValueError) as error:
        raise ConfigError(
            f"--urdf {path} is not XML: {printable(error)}. Fix the file, or export it again."
        ) from error
    other = _OTHER_FORMATS.get(root.tag.rpartition("}")[2])
    if other:
        raise ConfigError(f"--urdf {path} is {other}, not URDF. Convert it to a URDF first.")
    if root.tag != "robot":
        raise ConfigError(
            f"--urdf {path} begins with <{printable(root.tag)}>, and a URDF with <robot>. Give "
            "the path of a URDF."
        )
    if path.suffix == ".xacro" or any("xacro" in child.tag for child in root):
        raise ConfigError(
            f"--urdf {path} is a xacro file. Expand it first: xacro {path.name} > "
            f"{path.name.split('.')[0]}.urdf"
        )
    return root


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
                **asdict(joint),
                slides=kind == pybullet.JOINT_PRISMATIC,
                endless=endless,
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

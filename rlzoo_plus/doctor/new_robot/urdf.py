"""Reads the text of a URDF, and refuses what PyBullet would crash on or silently change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.errors import ConfigError, closest
from robots.engines.models import COMMAND, models_folder
from robots.simulation import Mimic

# Root elements of other formats for robots.
_OTHER_FORMATS = {"sdf": "SDF", "COLLADA": "COLLADA"}
_MOVABLE = ("revolute", "continuous", "prismatic")
_LIMITED = ("revolute", "prismatic")
# Beyond it PyBullet loads a body, but reads neither its base nor its links.
_MOST_JOINTS = 127
_UNIT_AXIS_TOLERANCE = 0.01
_LIMITS = ("lower", "upper", "effort", "velocity")
_NUMBERS = {"axis": ("xyz",), "origin": ("xyz", "rpy"), "mimic": ("multiplier", "offset")}


def read_urdf(given: str) -> ModelFile:
    """Find a URDF and read it as text.

    Args:
        given: A path, absolute or relative to here or to `pybullet_data`.

    Raises:
        ConfigError: It is not there, is no URDF, has no joint that moves, or PyBullet would not
            load it as it is written.
    """
    path, name = find_model("--urdf", given)
    root, where = _parse(path), f"--urdf {given}"
    # Their names come again in <transmission> and <gazebo>.
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    kinds = {joint: element.get("type", "") for joint, element in joints.items()}
    _check_names(root, where)
    if not any(kind in _MOVABLE for kind in kinds.values()):
        raise ConfigError(f"{where} has no joint that moves. Give the URDF of a robot.")
    links = {link.get("name", ""): link for link in root.findall("link")}
    if (problem := _tree_problem(joints, links)) is not None:
        raise ConfigError(
            f"{where}: {printable(problem)}. Its links must make one tree: fix <parent> and "
            "<child>, and close loops in Python."
        )
    _check_joints(joints, where)
    floating = tuple(joint for joint, kind in kinds.items() if kind == "floating")
    without_mass = tuple(link for link, text in links.items() if text.find("inertial") is None)
    for joint in floating:
        # PyBullet fixes a link of that name, whatever it is told.
        if _end(joints[joint], "parent") == "world" and "world" in without_mass:
            raise ConfigError(
                f"{where}: joint {printable(joint)} is floating, and PyBullet would weld it to the "
                "link world. Take both out: without them the robot is free to move."
            )
    moved = {_end(joint, "child") for joint in joints.values() if joint.get("type") in _MOVABLE}
    return ModelFile(
        "--urdf",
        path,
        root.get("name", ""),
        name,
        endless=frozenset(joint for joint, kind in kinds.items() if kind == "continuous"),
        floating=floating,
        mimic=_mimic(joints, where),
        remarks=(
            (floating, "joints are floating, and are welded"),
            (
                tuple(link for link in moved if _weighs_nothing(links[link])),
                "moving links state mass 0, and no motor moves such a link alone",
            ),
            (
                tuple(sorted(joint for joint in joints if _is_odd_axis(joints[joint]))),
                "axes are not of length 1, so their motors feel a wrong inertia on PyBullet",
            ),
            (without_mass, "links state no <inertial>, and are each taken to be 1 kg heavy"),
        ),
    )


def _is_odd_axis(joint: ElementTree.Element) -> bool:
    axis = joint.find("axis")
    if axis is None or joint.get("type") not in _MOVABLE:
        return False
    numbers = [float(part.rstrip(".")) for part in axis.get("xyz", "").replace(",", " ").split()]
    return bool(numbers) and abs(math.hypot(*numbers) - 1.0) > _UNIT_AXIS_TOLERANCE


def _check_names(root: ElementTree.Element, where: str) -> None:
    """Refuse names that PyBullet crashes on, and more joints than it reads."""
    for what, tag in (("joints", "joint"), ("links", "link")):
        names = [element.get("name", "") for element in root.findall(tag)]
        if tag == "joint" and len(names) > _MOST_JOINTS:
            raise ConfigError(
                f"{where} has {len(names)} joints, fixed ones included, and PyBullet takes at most "
                f"{_MOST_JOINTS}. Make one link of those that are fixed to each other."
            )
        for name, count in Counter(names).items():
            if count > 1 or not name.isprintable():
                problem = f"two {what} called" if count > 1 else "control characters in the name"
                raise ConfigError(f"{where} has {problem} {printable(name)!r}. Rename it.")


def _tree_problem(joints: Mapping[str, ElementTree.Element], links: Collection[str]) -> str | None:
    """Return why the links make no tree, on which PyBullet crashes; None if they make one."""
    parents: dict[str, str] = {}
    for name, joint in joints.items():
        parent, child = _end(joint, "parent"), _end(joint, "child")
        for link in (parent, child):
            if link not in links:
                return f"joint {name} names the link {link!r}, which is not there"
        if child in parents:
            return f"link {child} hangs on two joints, one of them {name}"
        parents[child] = parent
    roots = [link for link in links if link not in parents]
    if len(roots) != 1:
        return f"it must have one link without a parent, and has: {', '.join(roots) or 'none'}"
    below = set(roots)
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    lost = next((link for link in links if link not in below), None)
    return None if lost is None else f"link {lost} hangs on itself by a ring of joints"


def _end(joint: ElementTree.Element, which: str) -> str:
    end = joint.find(which)
    return "" if end is None else end.get("link", "")


def _weighs_nothing(link: ElementTree.Element) -> bool:
    mass = link.find("inertial/mass")
    try:
        return mass is not None and float(mass.get("value", "")) == 0
    except ValueError:
        return False


def _check_joints(joints: Mapping[str, ElementTree.Element], where: str) -> None:
    """Refuse numbers that PyBullet reads as 0 or as no limit, and axes that turn nothing."""
    for name, joint in joints.items():
        kind, limit = joint.get("type", ""), joint.find("limit")
        of_joint = f"{where}: joint {printable(name)}"
        if kind in _MOVABLE:
            for tag, attributes in _NUMBERS.items():
                for element in joint.findall(tag):
                    for attribute in attributes:
                        # PyBullet reads vectors with commas, too.
                        text = element.get(attribute, "").replace(",", " ")
                        numbers = _numbers(of_joint, f"{tag} {attribute}", text)
                        if tag == "axis" and not any(numbers):
                            raise ConfigError(
                                f"{of_joint} has an axis of length 0, about which nothing moves. "
                                'Write a unit vector, such as <axis xyz="0 0 1"/>.'
                            )
        if kind in _LIMITED and limit is not None:
            _check_limit(limit, kind, of_joint)


def _check_limit(limit: ElementTree.Element, kind: str, of_joint: str) -> None:
    given = {
        name: number
        for name in _LIMITS
        for number in _numbers(of_joint, name, limit.get(name, ""), is_limit=True)
    }
    if "lower" in given and "upper" not in given:
        raise ConfigError(f"{of_joint} has a lower limit and no upper one. Add upper=... to it.")
    lower, upper = given.get("lower", 0.0), given.get("upper", 0.0)
    # Nothing else in a URDF says that a joint slides without limits.
    if lower > upper and kind == "revolute":
        limits = f"lower={lower:g} above upper={upper:g}"
        raise ConfigError(f"{of_joint} has {limits}. Swap them, or make its type continuous.")


def _numbers(where: str, what: str, text: str, *, is_limit: bool = False) -> list[float]:
    """Return the numbers of an attribute; limits may be infinite."""
    found = []
    for number in text.split():
        try:
            # A point too many, as in PyBullet's own biped, changes nothing.
            value = float(number.rstrip("."))
        except ValueError:
            value = math.nan
        if math.isnan(value) or (math.isinf(value) and not is_limit):
            fix = "Write a finite number."
            if "$" in number:
                fix = "It is an expression of xacro: expand the file first, xacro IN > OUT."
            raise ConfigError(f"{where} has {what}={printable(text)!r}, which is no number. {fix}")
        found.append(value)
    return found


def _mimic(joints: Mapping[str, ElementTree.Element], where: str) -> dict[str, Mimic]:
    """Return the joints that follow another one, led by joints that follow none."""
    movable = {name for name, joint in joints.items() if joint.get("type") in _MOVABLE}
    elements = {name: joint.find("mimic") for name, joint in joints.items()}
    found = {}
    for name in [name for name in joints if name in movable and elements[name] is not None]:
        leader, multiplier, offset, chain = name, 1.0, 0.0, list[str]()
        while leader not in chain and (one := elements.get(leader)) is not None:
            chain.append(leader)
            offset += multiplier * sum(_numbers(name, "offset", one.get("offset", "")))
            multiplier *= sum(_numbers(name, "multiplier", one.get("multiplier", "")) or [1.0])
            leader = one.get("joint", "")
        if leader in chain or leader not in movable:
            wrong = f"mimics {printable(leader)!r}, which follows it or does not move"
            raise ConfigError(f"{where}: joint {printable(name)} {wrong}. Name another one.")
        found[name] = Mimic(name, leader, multiplier, offset)
    return found


def find_model(option: str, given: str, suffix: str = ".urdf") -> tuple[Path, str | None]:
    """Return the path of a file of the user or of `pybullet_data`, and its name in the latter.

    Raises:
        ConfigError: It is not there.
    """
    path, shipped = Path(given).expanduser(), models_folder()
    if path.is_file():
        inside = shipped is not None and path.resolve().is_relative_to(shipped.resolve())
        name = path.resolve().relative_to(shipped.resolve()).as_posix() if inside else None  # type: ignore[union-attr]
        return path.resolve(), name
    hint = f" That is not installed: `{COMMAND}` fetches it."
    if shipped is not None:
        if not path.is_absolute() and (shipped / path).is_file():
            return shipped / path, path.as_posix()
        known = [file.relative_to(shipped).as_posix() for file in shipped.rglob(f"*{suffix}")]
        near = closest(given, known)
        hint = f" Did you mean {near!r} of pybullet_data?" if near else ""
    raise ConfigError(f"{option} {given}: no such file here or in pybullet_data.{hint}")


def _parse(path: Path) -> ElementTree.Element:
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate("utf-8")
    # As PyBullet, without namespaces: many a file uses prefixes that it does not declare.
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    try:
        # PyBullet reads a file between empty lines or zeros, which XML does not allow.
        text = path.read_bytes().strip(b"\0\r\n\t ")
        # PyBullet would misread names in another encoding, declared or not.
        parser.Parse(text.decode(), True)
        root = builder.close()
    except (expat.ExpatError, OSError, ValueError, LookupError) as error:
        raise ConfigError(
            f"--urdf {path} is not XML in UTF-8: {printable(error)}. Fix the file, or export it "
            "again."
        ) from error
    if root.tag == "mujoco":
        raise ConfigError(f"--urdf {path} is MJCF, not URDF. Give it as --mjcf {path}")
    other = _OTHER_FORMATS.get(root.tag)
    if other:
        raise ConfigError(f"--urdf {path} is {other}, not URDF. Convert it to a URDF first.")
    if root.tag != "robot":
        tag = printable(root.tag)
        raise ConfigError(f"--urdf {path} begins with <{tag}>, not <robot>. Name a URDF.")
    declared = [name.removeprefix("xmlns:") for name, uri in root.items() if "xacro" in uri]
    of_xacro = tuple(f"{prefix}:" for prefix in ("xacro", *declared))
    if path.suffix == ".xacro" or any(one.tag.startswith(of_xacro) for one in root.iter()):
        raise ConfigError(f"--urdf {path} is a xacro file. Expand it first: xacro IN > OUT.urdf")
    return root

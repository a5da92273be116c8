"""Reads the text of a URDF, and refuses what PyBullet would crash on or silently change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, closest
from robots.simulation import Mimic

# Root elements of other formats for robots.
_OTHER_FORMATS = {"mujoco": "MJCF", "sdf": "SDF", "COLLADA": "COLLADA"}
_MOVABLE = ("revolute", "continuous", "prismatic")
_LIMITED = ("revolute", "prismatic")
# Beyond it PyBullet loads a body, but reads neither its base nor its links.
_MOST_JOINTS = 127
_LIMITS = ("lower", "upper", "effort", "velocity")
_NUMBERS = {"axis": ("xyz",), "origin": ("xyz", "rpy"), "mimic": ("multiplier", "offset")}


@dataclass(frozen=True)
class UrdfFile:
    """The text of a URDF.

    Attributes:
        path: Its path.
        name: Its path inside `pybullet_data`, None for a file of the user.
        endless: Names of the joints without limits.
        without_mass: Names of the links for which PyBullet assumes 1 kg.
        weightless: Names of the links with mass 0 that a joint moves.
        floating: Names of the floating joints, which PyBullet welds.
        mimic: The joints that follow another one, each with the joint that leads it.
    """

    path: Path
    name: str | None
    endless: frozenset[str]
    without_mass: tuple[str, ...]
    weightless: tuple[str, ...] = ()
    floating: tuple[str, ...] = ()
    mimic: Mapping[str, Mimic] = field(default_factory=dict)


def read_urdf(given: str) -> UrdfFile:
    """Find a URDF and read it as text.

    Args:
        given: A path, absolute or relative to here or to `pybullet_data`.

    Raises:
        ConfigError: It is not there, is no URDF, has no joint that moves, or PyBullet would not
            load it as it is written.
    """
    path, name = _find(given)
    root = _parse(path)
    # Their names come again in <transmission> and <gazebo>.
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    kinds = {joint: element.get("type", "") for joint, element in joints.items()}
    if not any(kind in _MOVABLE for kind in kinds.values()):
        raise ConfigError(
            f"--urdf {given} has no joint that moves: none of its {len(kinds)} joints is "
            f"{', '.join(_MOVABLE[:-1])} or {_MOVABLE[-1]}. Give the URDF of a robot."
        )
    _check_tree(root, given)
    _check_joints(joints, given)
    links = {link.get("name", ""): link for link in root.findall("link")}
    floating = tuple(joint for joint, kind in kinds.items() if kind == "floating")
    without_mass = tuple(link for link, text in links.items() if text.find("inertial") is None)
    _check_root(joints, floating, without_mass, given)
    moved = {_end(joint, "child") for joint in joints.values() if joint.get("type") in _MOVABLE}
    return UrdfFile(
        path=path,
        name=name,
        endless=frozenset(joint for joint, kind in kinds.items() if kind == "continuous"),
        without_mass=without_mass,
        weightless=tuple(link for link in moved if _weighs_nothing(links[link])),
        floating=floating,
        mimic=_mimic(joints, given),
    )


def _check_tree(root: ElementTree.Element, given: str) -> None:
    """Refuse names and links that PyBullet crashes on: the links must make one tree."""
    links = [link.get("name", "") for link in root.findall("link")]
    joints = {joint: joint.get("name", "") for joint in root.findall("joint")}
    if len(joints) > _MOST_JOINTS:
        raise ConfigError(
            f"--urdf {given} has {len(joints)} joints, fixed ones included, and PyBullet takes at "
            f"most {_MOST_JOINTS}. Make one link of those that are fixed to each other, or take "
            "parts away, such as fingers."
        )
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
    _check_ends(joints, links, given)


def _check_ends(joints: Mapping[ElementTree.Element, str], links: list[str], given: str) -> None:
    parents: dict[str, str] = {}
    for joint, name in joints.items():
        parent, child = _end(joint, "parent"), _end(joint, "child")
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


def _end(joint: ElementTree.Element, which: str) -> str:
    end = joint.find(which)
    return "" if end is None else end.get("link", "")


def _weighs_nothing(link: ElementTree.Element) -> bool:
    mass = link.find("inertial/mass")
    try:
        return mass is not None and float(mass.get("value", "")) == 0
    except ValueError:
        return False


def _check_joints(joints: Mapping[str, ElementTree.Element], given: str) -> None:
    """Refuse numbers that PyBullet reads as 0 or as no limit, and axes that turn nothing."""
    for name, joint in joints.items():
        kind, limit = joint.get("type", ""), joint.find("limit")
        of_joint = f"--urdf {given}: joint {printable(name)}"
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
        raise ConfigError(
            f"{of_joint} has lower={lower:g} above upper={upper:g}, which PyBullet takes for no "
            "limits. Swap them; a joint without limits is of the type continuous."
        )


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


def _check_root(
    joints: Mapping[str, ElementTree.Element],
    floating: tuple[str, ...],
    without_mass: tuple[str, ...],
    given: str,
) -> None:
    """Refuse a floating joint below a link `world`, which PyBullet fixes whatever it is told."""
    for joint in floating:
        if _end(joints[joint], "parent") == "world" and "world" in without_mass:
            raise ConfigError(
                f"--urdf {given}: joint {printable(joint)} is floating, and PyBullet would weld it "
                "to the link world. Take both out: with the link below as its root the robot is "
                "free to move."
            )


def _mimic(joints: Mapping[str, ElementTree.Element], given: str) -> dict[str, Mimic]:
    """Return the joints that follow another one, led by joints that follow none."""
    elements = {name: joint.find("mimic") for name, joint in joints.items()}
    found = {}
    for name, element in elements.items():
        if element is None or joints[name].get("type") not in _MOVABLE:
            continue
        leader, multiplier, offset, chain = name, 1.0, 0.0, [name]
        while (one := elements.get(leader)) is not None:
            offset += multiplier * sum(_numbers(name, "offset", one.get("offset", "")))
            multiplier *= sum(_numbers(name, "multiplier", one.get("multiplier", "")) or [1.0])
            leader = one.get("joint", "")
            if leader in chain or leader not in joints:
                _refuse_mimic(name, leader, given)
            chain.append(leader)
        if joints[leader].get("type") not in _MOVABLE:
            _refuse_mimic(name, leader, given)
        found[name] = Mimic(name, leader, multiplier, offset)
    return found


def _refuse_mimic(name: str, leader: str, given: str) -> NoReturn:
    raise ConfigError(
        f"--urdf {given}: joint {printable(name)} mimics {printable(leader)!r}, which follows it "
        "or is no joint that moves. Name another one in its <mimic>."
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
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate("utf-8")
    # As PyBullet, without namespaces: many a file uses prefixes that it does not declare.
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    try:
        # PyBullet reads a file between empty lines or zeros, which XML does not allow.
        text = path.read_bytes().strip(b"\0\r\n\t ")
        _check_encoding(path, text)
        parser.Parse(text, True)
        root = builder.close()
    except (expat.ExpatError, OSError, ValueError, LookupError) as error:
        raise ConfigError(
            f"--urdf {path} is not XML: {printable(error)}. Fix the file, or export it again."
        ) from error
    other = _OTHER_FORMATS.get(root.tag)
    if other:
        raise ConfigError(f"--urdf {path} is {other}, not URDF. Convert it to a URDF first.")
    if root.tag != "robot":
        raise ConfigError(
            f"--urdf {path} begins with <{printable(root.tag)}>, and a URDF with <robot>. Give "
            "the path of a URDF."
        )
    of_xacro = [f"{prefix}:" for prefix in _prefixes(root)]
    if path.suffix == ".xacro" or any(one.tag.startswith(tuple(of_xacro)) for one in root.iter()):
        raise ConfigError(
            f"--urdf {path} is a xacro file. Expand it first: xacro {path.name} > "
            f"{path.name.split('.')[0]}.urdf"
        )
    return root


def _prefixes(root: ElementTree.Element) -> list[str]:
    """Return the prefixes of xacro's elements."""
    declared = [name for name, uri in root.items() if name.startswith("xmlns:") and "xacro" in uri]
    return ["xacro", *(name.removeprefix("xmlns:") for name in declared)]


def _check_encoding(path: Path, text: bytes) -> None:
    """Refuse an encoding in which PyBullet would misread names."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"<robot" not in text:
            return
        line = text.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"--urdf {path} is not UTF-8, which is all that PyBullet reads: line {line} holds the "
            f"byte 0x{text[error.start]:02x}. If it is ISO-8859-1, convert it with iconv -f "
            f"ISO-8859-1 -t UTF-8 {path.name} > utf8.urdf, and take encoding=... out of line 1."
        ) from error

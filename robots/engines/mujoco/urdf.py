"""Reads a URDF as Bullet does, so that a robot is the same on both engines.

MuJoCo's own reader loses the links that fixed joints attach, and refuses files that Bullet takes:
paths with ``package:``, numbers that were never filled in, a scale of one value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from robots.ballast import with_ballast
from robots.camera import Colour, Vector3

Quat = tuple[float, float, float, float]
"""w, x, y, z, as MuJoCo orders them."""

NO_TURN: Quat = (1.0, 0.0, 0.0, 0.0)
_ORIGIN: Vector3 = (0.0, 0.0, 0.0)
_GREY: Colour = (0.72, 0.75, 0.79, 1.0)
# What Bullet assumes of a link whose file does not say it.
_FRICTION, _UNSTATED_KG, _UNSTATED_INERTIA = 0.5, 1.0, 1.0
MOVABLE = ("revolute", "continuous", "prismatic")


@dataclass(frozen=True)
class Geometry:
    """A shape of a link, in the frame of the link."""

    kind: str
    """box, sphere, cylinder, capsule, plane or mesh."""
    size: tuple[float, ...] = ()
    """Half the edges; radius; or radius and half the length [m]. Of a mesh its scale."""
    mesh: Path | None = None
    position: Vector3 = _ORIGIN
    turn: Quat = NO_TURN
    colour: Colour = _GREY


@dataclass
class Link:
    """A link; its moments of inertia are in the frame of its centre of mass."""

    name: str
    mass_kg: float = _UNSTATED_KG
    centre: Vector3 = _ORIGIN
    turn: Quat = NO_TURN
    """Of the frame of its centre of mass in that of the link."""
    inertia: NDArray[np.float64] = field(default_factory=lambda: _UNSTATED_INERTIA * np.eye(3))
    friction: float = _FRICTION
    collisions: list[Geometry] = field(default_factory=list)
    visuals: list[Geometry] = field(default_factory=list)


@dataclass(frozen=True)
class Joint:
    """A joint, in the frame of the link above it."""

    name: str
    kind: str
    position: Vector3
    turn: Quat
    axis: Vector3
    lower: float
    upper: float
    max_force: float
    max_velocity: float
    damping: float

    @property
    def is_movable(self) -> bool:
        """Whether it is one that can be driven."""
        return self.kind in MOVABLE


@dataclass(frozen=True)
class Node:
    """A link in the tree of a robot."""

    link: Link
    joint: Joint | None
    """The one above it; None for the base."""
    parent: int
    """Index of the link above it; -1 is the base."""


def read_urdf(path: Path, ballast_m: float | None = None) -> list[Node]:
    """Return the links of a URDF: the base, then the others in Bullet's order.

    So the index of a link is its place in the list less one.

    Args:
        path: The file.
        ballast_m: Add the links of ``robots.ballast`` at this distance.

    Raises:
        FileNotFoundError: A mesh that collides is not found.
        ValueError: The file is no URDF.
    """
    try:
        text = path.read_bytes() if ballast_m is None else with_ballast(path, ballast_m).encode()
        # Files state versions of XML that do not exist.
        robot = ElementTree.fromstring(text.replace(b'version="0.0"', b'version="1.0"'))
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: this is no URDF ({error}).") from error
    # A link may use a colour that another one has named.
    stated = [one for one in robot.iter("material") if one.find("color") is not None]
    colours = {one.get("name", ""): _colour(one) for one in stated}
    links = {one.get("name", ""): _link(one, path, colours) for one in robot.findall("link")}
    below: dict[str, list[Element]] = {name: [] for name in links}
    children = set()
    for joint in robot.findall("joint"):
        parent, child = (_attribute(joint, end, "link") for end in ("parent", "child"))
        for name in (parent, child):
            if name not in links:
                raise ValueError(f"{path}: joint {joint.get('name')!r} names no link {name!r}.")
        below[parent].append(joint)
        children.add(child)
    roots = [name for name in links if name not in children]
    if len(roots) != 1:
        raise ValueError(f"{path}: its base must be one link, and it has {roots or 'none'}.")
    nodes = [Node(links[roots[0]], None, -1)]
    # The joints that are still to follow, each with the index of the link above it.
    following = [(joint, -1) for joint in reversed(below[roots[0]])]
    while following:
        element, above = following.pop()
        name = _attribute(element, "child", "link")
        nodes.append(Node(links[name], _joint(element), above))
        following += [(joint, len(nodes) - 2) for joint in reversed(below[name])]
    return nodes


def numbers(text: str | None, count: int) -> tuple[float, ...]:
    """Return so many numbers of a text; zeros, as Bullet does, where it holds others."""
    try:
        values = tuple(float(part) for part in (text or "").split())
    except ValueError:
        values = ()
    return values if len(values) == count else (0.0,) * count


def quaternion(rpy: tuple[float, ...]) -> Quat:
    """Return the quaternion of roll, pitch and yaw about the fixed axes [rad]."""
    (a, b, c), (d, e, f) = np.cos(0.5 * np.array(rpy)), np.sin(0.5 * np.array(rpy))
    return (
        float(a * b * c + d * e * f),
        float(d * b * c - a * e * f),
        float(a * e * c + d * b * f),
        float(a * b * f - d * e * c),
    )


def _attribute(element: Element, child: str, name: str, default: str = "") -> str:
    found = element.find(child)
    return default if found is None else found.get(name, default)


def _origin(element: Element) -> tuple[Vector3, Quat]:
    x, y, z = numbers(_attribute(element, "origin", "xyz"), 3)
    return (x, y, z), quaternion(numbers(_attribute(element, "origin", "rpy"), 3))


def _colour(material: Element) -> Colour:
    values = numbers(_attribute(material, "color", "rgba"), 4)
    return (values[0], values[1], values[2], values[3]) if any(values) else _GREY


def _link(element: Element, path: Path, colours: dict[str, Colour]) -> Link:
    link = Link(element.get("name", ""))
    inertial = element.find("inertial")
    if inertial is not None:
        link.centre, link.turn = _origin(inertial)
        (link.mass_kg,) = numbers(_attribute(inertial, "mass", "value"), 1)
        moments = inertial.find("inertia")
        values = {} if moments is None else moments.attrib
        xx, xy, xz, yy, yz, zz = (
            numbers(values.get(f"i{name}"), 1)[0] for name in ("xx", "xy", "xz", "yy", "yz", "zz")
        )
        link.inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    friction = element.find("contact/lateral_friction")
    if friction is not None:
        (link.friction,) = numbers(friction.get("value"), 1)
    for collision in element.findall("collision"):
        link.collisions += _geometry(collision, path, _GREY, needed=True)
    for visual in element.findall("visual"):
        material = visual.find("material")
        colour = _GREY if material is None else colours.get(material.get("name", ""), _GREY)
        if material is not None and material.find("color") is not None:
            colour = _colour(material)
        link.visuals += _geometry(visual, path, colour, needed=False)
    return link


def _geometry(element: Element, path: Path, colour: Colour, needed: bool) -> Iterator[Geometry]:
    """Yield the shape of a collision or visual element; nothing for one that is not known."""
    position, turn = _origin(element)
    place = {"position": position, "turn": turn, "colour": colour}
    shape = element.find("geometry/*")
    if shape is None:
        return
    (radius,), (length,) = (numbers(shape.get(name), 1) for name in ("radius", "length"))
    if shape.tag == "box":
        size = tuple(0.5 * edge for edge in numbers(shape.get("size"), 3))
        yield Geometry("box", size, **place)  # type: ignore[arg-type]
    elif shape.tag == "sphere":
        yield Geometry("sphere", (radius,), **place)  # type: ignore[arg-type]
    elif shape.tag in ("cylinder", "capsule"):
        yield Geometry(shape.tag, (radius, 0.5 * length), **place)  # type: ignore[arg-type]
    elif shape.tag == "plane":
        yield Geometry("plane", **place)  # type: ignore[arg-type]
    elif shape.tag == "mesh":
        mesh = _mesh_file(path, shape.get("filename", ""))
        if mesh is not None and mesh.suffix.lower() in (".obj", ".stl"):
            scale = numbers(shape.get("scale"), 3)
            if not any(scale):
                scale = numbers(shape.get("scale"), 1) * 3
            yield Geometry("mesh", scale if any(scale) else (1.0,) * 3, mesh, **place)  # type: ignore[arg-type]
        elif needed:
            raise FileNotFoundError(
                f"{path}: its mesh {shape.get('filename')!r} is not found as .obj or .stl, which "
                "MuJoCo needs for a shape that collides."
            )


def _mesh_file(urdf: Path, name: str) -> Path | None:
    """Return the file of a mesh, which Bullet also looks for in folders above the URDF."""
    inner = name.removeprefix("package://").removeprefix("file://")
    for folder in urdf.resolve().parents:
        if (folder / inner).is_file():
            return folder / inner
        if inner == name:
            break
    return None


def _joint(element: Element) -> Joint:
    position, turn = _origin(element)
    axis = numbers(_attribute(element, "axis", "xyz", "1 0 0"), 3)
    length = float(np.linalg.norm(axis))
    x, y, z = (part / length for part in axis) if length else (1.0, 0.0, 0.0)
    limit, dynamics = element.find("limit"), element.find("dynamics")
    stated = {} if limit is None else limit.attrib
    lower, upper, effort, velocity = (
        numbers(stated.get(name), 1)[0] for name in ("lower", "upper", "effort", "velocity")
    )
    kind = element.get("type", "fixed")
    if not {"lower", "upper"} & stated.keys():
        lower, upper = 0.0, -1.0
    (damping,) = numbers(None if dynamics is None else dynamics.get("damping"), 1)
    name = element.get("name", "")
    return Joint(name, kind, position, turn, (x, y, z), lower, upper, effort, velocity, damping)

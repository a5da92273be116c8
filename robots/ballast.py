"""Ballast: links without a shape, whose weights move the centre of mass of a robot's trunk."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

BALLAST = "randomization_ballast"
"""How the names of such links begin."""
LINK_KG = 1e-6
"""Weight of one that carries nothing."""


def with_ballast(path: Path, reach_m: float) -> str:
    """Return a URDF with six further links, fixed at a distance from the trunk's centre of mass.

    They lie along +x, -x, +y, -y, +z and -z of the trunk: the heaviest link that is, by fixed
    joints alone, one with the base.

    Args:
        path: The URDF.
        reach_m: The distance.

    Raises:
        FileNotFoundError: A mesh is not found, whose path must be complete in the new URDF.
    """
    robot = ElementTree.parse(path).getroot()
    for mesh in robot.iter("mesh"):
        mesh.set("filename", str(_found(path, mesh.get("filename", ""))))
    trunk = max(_rigid_links(robot), key=_mass)
    centre = [float(x) for x in _origin(trunk).split()]
    for number in range(6):
        name, place = f"{BALLAST}_{number}", list(centre)
        place[number // 2] += reach_m if number % 2 == 0 else -reach_m
        inertial = SubElement(SubElement(robot, "link", name=name), "inertial")
        SubElement(inertial, "mass", value=str(LINK_KG))
        moments = dict.fromkeys(("ixx", "iyy", "izz"), str(LINK_KG * 1e-3))
        SubElement(inertial, "inertia", moments | dict.fromkeys(("ixy", "ixz", "iyz"), "0"))
        joint = SubElement(robot, "joint", name=f"{name}_joint", type="fixed")
        SubElement(joint, "parent", link=trunk.get("name", ""))
        SubElement(joint, "child", link=name)
        SubElement(joint, "origin", xyz=" ".join(map(repr, place)), rpy="0 0 0")
    return ElementTree.tostring(robot, encoding="unicode")


def _rigid_links(robot: Element) -> Iterator[Element]:
    """Return the base, and the links that are fixed to it."""
    joints = [(_end(joint, "parent"), _end(joint, "child"), joint) for joint in robot.iter("joint")]
    children = {child for _, child, _ in joints}
    links = {link.get("name"): link for link in robot.findall("link")}
    names = [name for name in links if name not in children][:1]
    for name in names:
        yield links[name]
        names += [
            child
            for parent, child, joint in joints
            if parent == name and joint.get("type") == "fixed" and child in links
        ]


def _end(joint: Element, which: str) -> str | None:
    end = joint.find(which)
    return None if end is None else end.get("link")


def _mass(link: Element) -> float:
    mass = link.find("inertial/mass")
    return 0.0 if mass is None else float(mass.get("value", 0.0))


def _origin(link: Element) -> str:
    origin = link.find("inertial/origin")
    return "0 0 0" if origin is None else origin.get("xyz", "0 0 0")


def _found(urdf: Path, mesh: str) -> Path:
    """Return the complete path of a mesh, which Bullet also looks for in folders above the URDF."""
    name = mesh.removeprefix("package://")
    for folder in urdf.resolve().parents:
        if (folder / name).is_file():
            return folder / name
        if name == mesh:
            break
    raise FileNotFoundError(
        f"{urdf}: its mesh {mesh!r} is not found, which a centre of mass that moves needs. Give "
        "its path from the folder of the URDF."
    )

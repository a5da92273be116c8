"""A URDF as a file: its path, whether it can be read, and what only its text contains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, closest

# Roots of other formats that a robot may come in.
_OTHER_FORMATS = {"mujoco": "MJCF", "sdf": "SDF", "COLLADA": "COLLADA"}
_MOVABLE = ("revolute", "continuous", "prismatic")


@dataclass(frozen=True)
class UrdfFile:
    """What the text of a URDF says.

    Attributes:
        path: Where it lies.
        name: What RobotSpec takes: a path inside `pybullet_data`, or None for a file of the user's.
        endless: Names of the joints that turn without limits.
        without_mass: Names of the links for which PyBullet makes up a mass of 1 kg.
    """

    path: Path
    name: str | None
    endless: frozenset[str]
    without_mass: tuple[str, ...]


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


def _check_names(links: list[str], joints: list[str], given: str) -> None:
    """Refuse names that PyBullet crashes on, or that no pattern can match."""
    unseen = next((name for name in [*joints, *links] if not name.isprintable()), None)
    if unseen is not None:
        raise ConfigError(
            f"--urdf {given}: the name {printable(unseen)} holds control characters. Take them out."
        )
    for what, names in (("joints", joints), ("links", links)):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"--urdf {given} has two {what} called {printable(twice)!r}. Rename one of them."
            )


def _check_tree(root: ElementTree.Element, given: str) -> None:
    """Refuse links that do not make one tree: PyBullet may crash on them."""
    links = [link.get("name", "") for link in root.findall("link")]
    joints = root.findall("joint")
    _check_names(links, [joint.get("name", "") for joint in joints], given)
    parents: dict[str, str] = {}
    for joint in joints:
        ends = [end.get("link", "") if end is not None else "" for end in _ends(joint)]
        unknown = next((end for end in ends if end not in links), None)
        name = printable(joint.get("name", ""))
        if unknown is not None:
            raise ConfigError(
                f"--urdf {given}: joint {name} names the link {printable(unknown)!r}, which is "
                "not there. Fix its <parent> or <child>."
            )
        if ends[1] in parents:
            raise ConfigError(
                f"--urdf {given}: link {printable(ends[1])} hangs on two joints, one of them "
                f"{name}. A URDF is a tree: take one away, and close the loop in Python."
            )
        parents[ends[1]] = ends[0]
    _check_root(links, parents, given)


def _check_root(links: list[str], parents: dict[str, str], given: str) -> None:
    roots = [link for link in links if link not in parents]
    if len(roots) != 1:
        found = printable(", ".join(roots)) or "none"
        raise ConfigError(
            f"--urdf {given} must have one link without a parent, and has: {found}. Join the "
            "parts, or take what is too much away."
        )
    for link in links:
        above = [link]
        while above[-1] in parents:
            above.append(parents[above[-1]])
            if len(above) > len(links):
                raise ConfigError(
                    f"--urdf {given}: link {printable(link)} hangs on itself by a ring of joints. "
                    "Fix their <parent> and <child>."
                )


def _ends(joint: ElementTree.Element) -> tuple[ElementTree.Element | None, ...]:
    return joint.find("parent"), joint.find("child")


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

"""Reads the robot of an MJCF as Bullet does, so that it is the same on both engines."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import mujoco

from robots.engines.mujoco.records import (
    BOTH,
    MOTOR_IMPEDANCE,
    SEEN,
    LinkRecord,
    set_damping,
    set_moments,
)
from robots.simulation import JointInfo


@dataclass(frozen=True)
class Mjcf:
    """The robot of an MJCF."""

    spec: mujoco.MjSpec
    """To be attached to another specification."""
    links: list[LinkRecord]
    """The base first. Where joints share a body, each moves a link of its own."""
    is_free: bool


@dataclass(frozen=True)
class _Reading:
    prefix: str
    model: mujoco.MjModel
    keep_damping: bool
    stated_kg: dict[str, float]
    """Masses of bodies whose file gives no place for them, which Bullet takes."""


def read_mjcf(path: Path, prefix: str, *, keep_damping: bool) -> Mjcf:
    """Return the robot of an MJCF, without its world, actuators and sensors.

    Args:
        path: The file.
        prefix: What its names will begin with.
        keep_damping: Leave the damping as the file has it; otherwise there is none.

    Raises:
        ValueError: The file is no MJCF, or has more than one body below the world.
    """
    spec, stated_kg = _mended(path)
    spec.compiler.settotalmass = -1.0  # Bullet leaves masses as the bodies' are.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of old attributes, which it still heeds.
        model = spec.compile()
    spec.compiler.inertiafromgeom = False  # They are set below.
    roots = list(spec.worldbody.bodies)
    if len(roots) != 1:
        raise ValueError(
            f"urdf={str(path)!r} holds {len(roots)} bodies, and a robot is one. Leave one in the "
            "file."
        )
    for kept in (spec.actuators, spec.sensors, spec.keys, spec.pairs, spec.excludes):
        for one in list(kept):
            spec.delete(one)
    for one in (*spec.worldbody.geoms, *spec.cameras, *spec.lights):
        spec.delete(one)
    is_free = any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in roots[0].joints)
    links = [] if is_free else [LinkRecord("link0_1", -1, "world")]
    _walk(roots[0], -1, links, _Reading(prefix, model, keep_damping, stated_kg))
    return Mjcf(spec, links, is_free)


def _walk(body: mujoco.MjsBody, above: int, links: list[LinkRecord], how: _Reading) -> None:
    """Append the links of a body of an MJCF, and of those below it."""
    model, element = how.model, how.prefix + body.name
    known = model.body(body.name)
    # What the whole file says of masses is lost when the body is attached.
    if (mass := float(known.mass[0])) > 0:
        heavier = how.stated_kg.get(body.name, mass) / mass
        set_moments(body, heavier * mass, heavier * known.inertia, known.ipos, known.iquat)
    for joint in body.joints:
        if joint.type not in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
            continue
        index = len(links) - 1
        joint.solimp_friction = MOTOR_IMPEDANCE
        if not how.keep_damping:
            set_damping(joint, 0.0)
        record = LinkRecord(f"link0_{index + 2}", above, element, has_mass=False)
        record.joint_element = how.prefix + joint.name
        facts = model.joint(joint.name)
        lower, upper = facts.range.tolist() if model.jnt_limited[facts.id] else (0.0, -1.0)
        record.joint = JointInfo(
            index,
            joint.name,
            lower,
            upper,
            _strength(model, facts.id),
            slides=joint.type == mujoco.mjtJoint.mjJNT_SLIDE,
        )
        links.append(record)
        above = index
    record = LinkRecord(body.name, above, element)
    for number, geom in enumerate(list(body.geoms)):
        if not geom.name:
            geom.name = f"{body.name}/{number}"
        collides = bool(geom.contype or geom.conaffinity)
        record.friction = float(geom.friction[0])
        geom.contype = geom.conaffinity = 0
        geom.group = BOTH if collides else SEEN
        names = record.touched if collides else record.seen
        names.append(how.prefix + geom.name)
    links.append(record)
    index = len(links) - 2
    for below in body.bodies:
        _walk(below, index, links, how)


def _strength(model: mujoco.MjModel, joint: int) -> float:
    """Return the greatest force of the actuators of a joint [N m or N]; 0 without one."""
    for number in range(model.nu):
        if model.actuator_trnid[number, 0] == joint:
            if model.actuator_forcelimited[number]:
                return float(model.actuator_forcerange[number, 1])
            if model.actuator_ctrllimited[number]:
                return float(model.actuator_gear[number, 0] * model.actuator_ctrlrange[number, 1])
    return 0.0


def _mended(path: Path) -> tuple[mujoco.MjSpec, dict[str, float]]:
    """Return the specification of an MJCF without inertias that lack a place, and their masses.

    Raises:
        ValueError: The file is no MJCF.
    """
    try:
        tree = ElementTree.parse(path)
        root = tree.getroot()
        stated_kg: dict[str, float] = {}
        for body in root.iter("body"):
            for inertial in body.findall("inertial"):
                if "pos" not in inertial.attrib:
                    stated_kg[body.get("name", "")] = float(inertial.get("mass", 0.0))
                    body.remove(inertial)
        compiler = root.find("compiler")
        if compiler is None:
            compiler = ElementTree.SubElement(root, "compiler")
        folder = path.resolve().parent
        for name in ("meshdir", "texturedir", "assetdir"):
            if name in compiler.attrib or name == "meshdir":
                compiler.set(name, str(folder / compiler.get(name, "")))
        for size in root.findall("size"):
            size.attrib.clear()
        text = ElementTree.tostring(root, encoding="unicode")
        return mujoco.MjSpec.from_string(text), stated_kg
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path}: MuJoCo cannot read it as MJCF ({error}).") from error

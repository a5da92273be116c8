"""Reads the robot of an MJCF as Bullet does, so that it is the same on both engines."""

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np

from robots.engines import MjcfFacts
from robots.engines.mujoco.mjcf_text import MjcfText
from robots.engines.mujoco.records import (
    BOTH,
    MOTOR_IMPEDANCE,
    SEEN,
    TOUCHED,
    LinkRecord,
    set_damping,
    set_moments,
)
from robots.simulation import JointInfo, Mimic

# Groups of geoms that MuJoCo's viewer draws.
_DRAWN = range(3)
_MOVABLE = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


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
    keep_joints: bool
    stated_kg: dict[str, float]
    """Masses of bodies whose file gives no place for them, which Bullet takes."""
    hidden: range
    """Groups of geoms that are not drawn."""


def read_mjcf(path: Path, prefix: str, *, keep_joints: bool) -> Mjcf:
    """Return the robot of an MJCF, without its world, actuators, sensors and couplings.

    Args:
        path: The file.
        prefix: What its names will begin with.
        keep_joints: Leave springs, damping and armature of joints; otherwise there are none.

    Raises:
        ValueError: The file is no MJCF, has more than one body below the world, or what no robot
            has here.
    """
    text = MjcfText(path)
    stated_kg = _without_place(text)
    spec, model = _compiled(text)
    spec.compiler.inertiafromgeom = False  # They are set below.
    root = _root(text, spec)
    _refuse_loops(text, model)
    for kept in (spec.actuators, spec.equalities, spec.tendons, spec.keys):
        for one in list(kept):
            spec.delete(one)
    for one in (*spec.worldbody.geoms, *spec.cameras, *spec.lights):
        spec.delete(one)
    is_free = _is_free(root)
    links = [] if is_free else [LinkRecord("link0_1", -1, "world")]
    # As in MuJoCo's viewer; a robot all of whose geoms are hidden is drawn all the same.
    has_looks = any(geom.group in _DRAWN for geom in spec.geoms)
    hidden = range(_DRAWN.stop, mujoco.mjNGROUP) if has_looks else range(0)
    _walk(root, -1, links, _Reading(prefix, model, keep_joints, stated_kg, hidden))
    return Mjcf(spec, links, is_free)


def read_facts(path: Path) -> MjcfFacts:
    """Return what an MJCF says beside its links and joints; raises as ``read_mjcf``."""
    text = MjcfText(path)
    _without_place(text)
    spec, model = _compiled(text)
    is_free = _is_free(_root(text, spec))
    _refuse_loops(text, model)
    movable = [model.joint(n) for n in range(model.njnt) if int(model.jnt_type[n]) in _MOVABLE]
    driven = {one.name for one in movable if _drivers(model, one.id)}
    keys = [model.key(number) for number in range(model.nkey)]
    key = next((one for one in keys if one.name == "home"), keys[0] if keys else None)
    places = {one.name: int(model.jnt_qposadr[one.id]) for one in movable}
    loose = [n for n in range(model.nu) if not _pushes(model, n)]
    rough = [one.name for one in movable if model.dof_frictionloss[model.jnt_dofadr[one.id]] > 0]
    sprung = [one.name for one in movable if model.jnt_stiffness[one.id] > 0]
    return MjcfFacts(
        is_free=is_free,
        joints=tuple(places),
        home={} if key is None else {name: float(key.qpos[at]) for name, at in places.items()},
        undriven=tuple(one.name for one in movable if one.name not in driven) if driven else (),
        couplings=_couplings(text, model, driven),
        left_out={
            "tendons": tuple(model.tendon(n).name or f"{n}" for n in range(model.ntendon)),
            "actuators": tuple(model.actuator(n).name or f"{n}" for n in loose),
            "friction": tuple(rough),
            "springs": tuple(sprung),
            "options": text.unheeded,
            "shapes of the world": ("geom",) if text.has_world else (),
            "textures": ("texture",) if text.has_images else (),
        },
    )


def _compiled(text: MjcfText) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """Return specification and model of a text; raise a ValueError where MuJoCo takes neither."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of old attributes, which it still heeds.
            spec = mujoco.MjSpec.from_string(ElementTree.tostring(text.root, encoding="unicode"))
            spec.compiler.settotalmass = -1.0  # Bullet leaves masses as the bodies' are.
            return spec, spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{text.path}: MuJoCo cannot read it as MJCF ({reason}).") from error


def _root(text: MjcfText, spec: mujoco.MjSpec) -> mujoco.MjsBody:
    roots = list(spec.worldbody.bodies)
    if len(roots) != 1:
        names = ", ".join(one.name for one in roots[:5]) or "none"
        text.refuse(f"holds {len(roots)} bodies ({names}), and a robot is one", "Leave one in it")
    return roots[0]


def _is_free(root: mujoco.MjsBody) -> bool:
    return any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in root.joints)


def _refuse_loops(text: MjcfText, model: mujoco.MjModel) -> None:
    """Refuse constraints that would have to be dropped, with which the robot is another one."""
    for number in range(model.neq):
        kind = mujoco.mjtEq(model.eq_type[number])
        name = model.equality(number).name or f"number {number}"
        if kind != mujoco.mjtEq.mjEQ_JOINT:
            what = kind.name.removeprefix("mjEQ_").lower()
            text.refuse(
                f"has the equality {name!r} ({what}), which closes a loop of links",
                "Take it out, or make the links a tree",
            )
        joints = model.eq_obj1id[number], model.eq_obj2id[number]
        is_zero = all(model.qpos0[model.jnt_qposadr[joint]] == 0 for joint in joints)
        if min(joints) < 0 or model.eq_data[number, 2:5].any() or not is_zero:
            text.refuse(
                f"has the equality {name!r}, by which no joint follows another one in proportion",
                "Couple two joints with ref=0 and polycoef of two numbers",
            )


def _couplings(text: MjcfText, model: mujoco.MjModel, driven: Collection[str]) -> tuple[Mimic, ...]:
    """Return joints that follow others, led by those that follow none."""
    found: dict[str, Mimic] = {}
    for number in np.flatnonzero(model.eq_active0[: model.neq]).tolist():
        ends = model.eq_obj1id[number], model.eq_obj2id[number]
        joint, leader = (model.joint(end).name for end in ends)
        offset, ratio = model.eq_data[number, :2].tolist()
        if joint in driven and leader not in driven and ratio:
            joint, leader, offset, ratio = leader, joint, -offset / ratio, 1.0 / ratio
        if joint in found:
            text.refuse(f"lets {joint[:60]!r} follow two joints", "Take one equality out")
        found[joint] = Mimic(joint, leader, ratio, offset)
    for joint, one in found.items():
        passed = {joint}
        while (above := found.get(one.leader)) is not None:
            if one.leader in passed:
                text.refuse(f"lets {joint[:60]!r} follow itself", "Take an equality out")
            passed.add(one.leader)
            offset = one.offset + one.multiplier * above.offset
            one = Mimic(joint, above.leader, one.multiplier * above.multiplier, offset)
        found[joint] = one
    return tuple(found.values())


def _walk(body: mujoco.MjsBody, above: int, links: list[LinkRecord], how: _Reading) -> None:
    """Append the links of a body of an MJCF, and of those below it."""
    model, element = how.model, how.prefix + body.name
    known = model.body(body.name)
    # What the whole file says of masses is lost when the body is attached.
    if (mass := float(known.mass[0])) > 0:
        heavier = how.stated_kg.get(body.name, mass) / mass
        body.fullinertia = np.array([np.nan, *[0.0] * 5])
        set_moments(body, heavier * mass, heavier * known.inertia, known.ipos, known.iquat)
    for joint in body.joints:
        if joint.type not in _MOVABLE:
            continue
        index = len(links) - 1
        joint.solimp_friction = MOTOR_IMPEDANCE
        joint.frictionloss = 0.0  # Its constraint is the motor's.
        if not how.keep_joints:
            joint.armature = 0.0
            joint.stiffness = np.zeros_like(joint.stiffness)
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
    balls = [one.name for one in body.joints if one.type == mujoco.mjtJoint.mjJNT_BALL]
    if balls:
        record.hangs = balls[0], "spherical"
    frictions: list[float] = []
    for number, geom in enumerate(list(body.geoms)):
        if not geom.name:
            geom.name = f"{body.name}/{number}"
        collides = bool(geom.contype or geom.conaffinity)
        geom.contype = geom.conaffinity = 0
        is_hidden = geom.group in how.hidden
        if collides:
            geom.group = TOUCHED if is_hidden else BOTH
            frictions.append(float(geom.friction[0]))
            record.touched.append(how.prefix + geom.name)
        elif is_hidden:
            geom.group = mujoco.mjNGROUP - 1
        else:
            geom.group = SEEN
            record.seen.append(how.prefix + geom.name)
    record.friction = max(frictions, default=record.friction)
    links.append(record)
    index = len(links) - 2
    for below in body.bodies:
        _walk(below, index, links, how)


def _strength(model: mujoco.MjModel, joint: int) -> float:
    """Return the greatest force of the actuators of a joint [N m or N]; 0 without one."""
    found = 0.0
    for number in _drivers(model, joint):
        gear = abs(float(model.actuator_gear[number, 0]))
        gain = abs(float(model.actuator_gainprm[number, 0]))
        # Where a bias is added, a control is a position or a velocity, and no force.
        is_force = int(model.actuator_biastype[number]) == mujoco.mjtBias.mjBIAS_NONE
        if model.actuator_forcelimited[number]:
            found = max(found, gear * float(np.abs(model.actuator_forcerange[number]).max()))
        elif model.actuator_ctrllimited[number] and is_force:
            most = float(np.abs(model.actuator_ctrlrange[number]).max())
            found = max(found, gear * gain * most)
    if model.jnt_actfrclimited[joint]:
        limit = float(np.abs(model.jnt_actfrcrange[joint]).max())
        found = min(found or limit, limit)
    return found


def _drivers(model: mujoco.MjModel, joint: int) -> list[int]:
    """Return the actuators that push a joint."""
    own = np.flatnonzero(model.actuator_trnid[: model.nu, 0] == joint).tolist()
    return [number for number in own if _pushes(model, number)]


def _pushes(model: mujoco.MjModel, actuator: int) -> bool:
    """Return whether an actuator is a motor of one joint; muscles and the like are none."""
    by_joint = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    return (
        int(model.actuator_trntype[actuator]) in by_joint
        and int(model.actuator_gaintype[actuator]) == mujoco.mjtGain.mjGAIN_FIXED
    )


def _without_place(text: MjcfText) -> dict[str, float]:
    """Take out inertias that lack a place; return the masses that they state."""
    stated_kg: dict[str, float] = {}
    for world in text.worlds():
        for body in world.iter("body"):
            for inertial in body.findall("inertial"):
                if "pos" not in inertial.attrib:
                    try:
                        stated_kg[body.get("name", "")] = float(inertial.get("mass", 0.0))
                    except ValueError:
                        text.refuse("has a mass that is no number", "Fix the file")
                    body.remove(inertial)
    return stated_kg

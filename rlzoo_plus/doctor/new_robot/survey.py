"""Measures a robot as PyBullet loads it, and guesses whether its base is fixed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pybullet

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.doctor.new_robot.base_guess import guess_base, is_endless
from rlzoo_plus.doctor.new_robot.urdf import UrdfFile
from rlzoo_plus.errors import ConfigError
from robots.engines.bullet.simulation import BulletSimulation
from robots.quiet import native_output_hidden
from robots.simulation import JointInfo, Mimic

# Prefix of PyBullet's messages: the function, file and line in its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")

# Above the ground, so that the distance can be measured.
_ALOFT_M = 20.0
_MOST_NAMED = 5
_STEPS_TO_SEE_IT_MOVE = 10
_UNIT_AXIS_TOLERANCE = 0.01
_OF_MORE_AXES = (pybullet.JOINT_PLANAR, pybullet.JOINT_SPHERICAL)


@dataclass(frozen=True, kw_only=True)
class JointSurvey(JointInfo):
    """A movable joint."""

    endless: bool  # Whether it has no limits
    locked: bool  # Whether its limits are equal, so that it cannot move
    rest: float  # Rest position


@dataclass(frozen=True)
class RobotSurvey:
    """What must be known about a robot to write an environment for it."""

    # Its movable joints, in the order of the URDF, but for those that follow another
    joints: list[JointSurvey]
    mimic: tuple[Mimic, ...]  # The joints that follow another one
    mass_kg: float  # Mass of all links
    stands_free: bool  # Whether its base is probably not fixed
    reason: str  # Why that is so
    # Height of the base's center of mass when the lowest point touches the ground; None without
    # collision shapes
    height_m: float | None
    # Orientation of the base's principal axes when the URDF's axes are those of the world,
    # quaternion (x, y, z, w)
    orientation: tuple[float, float, float, float]
    # Middle of the robot, relative to the origin of its base [m]
    middle: tuple[float, float, float]
    size_m: tuple[float, float, float]  # Lengths of its edges
    notes: list[str] = field(default_factory=list)  # What the user should know


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
        simulation = BulletSimulation()
        try:
            ground = simulation.load_urdf("plane.urdf")
            body = _load(simulation, urdf)
            every = _joints(simulation, body, urdf)
            led = [joint for joint in every if joint.name not in urdf.mimic]
            joints = _at_rest([joint for joint in led if not joint.locked], rest)
            at = {joint.name: joint.rest for joint in [*every, *joints]}
            for name, mimic in urdf.mimic.items():
                at[name] = mimic.multiplier * at[mimic.leader] + mimic.offset
            indices = [joint.index for joint in every]
            positions = [at[joint.name] for joint in every]
            simulation.reset_joints(body, indices, positions, [0.0] * len(every))
            found = _measure(simulation, body, ground, urdf, joints)
            _check_motion(simulation, body, indices, urdf)
            found.notes.extend(_notes(simulation, body, urdf, every))
            if found.height_m is None:
                found.notes.append(
                    "no link has a <collision> shape: a free robot falls through the ground"
                )
            return found
        finally:
            simulation.close()


def _load(simulation: BulletSimulation, urdf: UrdfFile) -> int:
    with tempfile.TemporaryFile() as output:
        try:
            with native_output_hidden(output.fileno()):
                path = str(urdf.path)
                return simulation.load_urdf(path, position=(0, 0, _ALOFT_M), fixed_base=False)
        except FileNotFoundError:
            output.seek(0)
            text = _HEAD.sub("\n", output.read().decode(errors="replace"))
    lines = [line.strip() for line in dict.fromkeys(text.splitlines()) if line.strip()]
    # What follows a missing mesh, and what precedes it, is not the cause.
    causes = [line for line in lines if "cannot find" in line or "invalid mesh" in line] or lines
    reason = printable("; ".join(causes) or "it does not say why")
    fix = "Fix the file; missing meshes are looked for beside it"
    raise ConfigError(f"--urdf {urdf.path}: PyBullet cannot load it: {reason}. {fix}.")


def _joints(simulation: BulletSimulation, body: int, urdf: UrdfFile) -> list[JointSurvey]:
    """Return the movable joints, each at rest at 0 or in the middle of its range."""
    joints = {}
    for joint in simulation.movable_joints(body):
        endless = is_endless(joint.name, joint.lower, joint.upper, urdf)
        joints[joint.name] = JointSurvey(
            **asdict(joint),
            endless=endless,
            locked=not endless and joint.lower == joint.upper,
            rest=0.0,
        )
    for mimic in urdf.mimic.values():
        joints[mimic.leader] = _narrowed(joints[mimic.leader], joints[mimic.joint], mimic)
    return [_resting(joint) for joint in joints.values()]


def _narrowed(leader: JointSurvey, follower: JointSurvey, mimic: Mimic) -> JointSurvey:
    """Return a joint with limits that keep the joint that follows it within its own."""
    if follower.endless or not mimic.multiplier:
        return leader
    ends = [(end - mimic.offset) / mimic.multiplier for end in (follower.lower, follower.upper)]
    lower, upper = min(ends), max(ends)
    if not leader.endless:
        lower, upper = max(lower, leader.lower), min(upper, leader.upper)
    return replace(leader, lower=lower, upper=upper, endless=False) if lower < upper else leader


def _resting(joint: JointSurvey) -> JointSurvey:
    has_zero = joint.endless or joint.lower <= 0 <= joint.upper
    return joint if has_zero else replace(joint, rest=(joint.lower + joint.upper) / 2)


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
                limits = f"from {joint.lower:g} to {joint.upper:g}"
                raise ConfigError(f"--rest {text}: {joint.name} moves {limits}. Choose among them.")
        joints = [replace(joint, rest=rest) if matches(joint.name) else joint for joint in joints]
    return joints


def _measure(
    simulation: BulletSimulation, body: int, ground: int, urdf: UrdfFile, joints: list[JointSurvey]
) -> RobotSurvey:
    bind = simulation.bind
    bind(pybullet.performCollisionDetection)()
    position, orientation = bind(pybullet.getBasePositionAndOrientation)(body)
    distances = [point[8] for point in bind(pybullet.getClosestPoints)(body, ground, 2 * _ALOFT_M)]
    n_joints = bind(pybullet.getNumJoints)(body)
    boxes = np.array([bind(pybullet.getAABB)(body, link) for link in range(-1, n_joints)])
    lowest, highest = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    stands_free, reason = guess_base(simulation, body, urdf)
    mass = sum(link.mass_kg for link in simulation.link_dynamics(body).values())
    if mass <= 0:
        raise ConfigError(
            f"--urdf {urdf.path}: all links together weigh {mass:g} kg. State the <mass> of each."
        )
    return RobotSurvey(
        joints=joints,
        mimic=tuple(urdf.mimic.values()),
        mass_kg=mass,
        stands_free=stands_free,
        reason=reason,
        height_m=position[2] - min(distances) if distances else None,
        orientation=orientation,
        middle=tuple(((lowest + highest) / 2 - (0, 0, _ALOFT_M)).tolist()),
        size_m=tuple((highest - lowest).tolist()),
    )


def _check_motion(
    simulation: BulletSimulation, body: int, joints: Sequence[int], urdf: UrdfFile
) -> None:
    """Refuse a robot that does not fall as a body does."""
    for _ in range(_STEPS_TO_SEE_IT_MOVE):
        simulation.step()
    positions = simulation.joint_reader(body, joints)()[: len(joints)]
    base = simulation.pose_reader(body)()[0]
    if not np.isfinite([*positions, *base]).all():
        raise ConfigError(
            f"--urdf {urdf.path}: PyBullet computes positions that are no numbers. State the "
            "<mass> and <inertia> of every link that a joint moves, all above 0."
        )


def _notes(
    simulation: BulletSimulation, body: int, urdf: UrdfFile, joints: list[JointSurvey]
) -> list[str]:
    """Return where PyBullet does not do what the URDF says, and what is guessed."""
    bind = simulation.bind
    infos = [bind(pybullet.getJointInfo)(body, i) for i in range(bind(pybullet.getNumJoints)(body))]
    named = {info[1].decode(): info for info in infos}
    axes = {joint.name: float(np.linalg.norm(named[joint.name][13])) for joint in joints}
    limits = {joint.name: named[joint.name][8:10] for joint in joints}
    driven = [joint for joint in joints if not joint.locked and joint.name not in urdf.mimic]
    return [
        f"{len(names)} {text}: {_some(names)}"
        for names, text in (
            (
                [f"{one.joint} (as {one.leader})" for one in urdf.mimic.values()],
                "joints follow another one by <mimic> and have no action of their own",
            ),
            (
                [j.name for j in joints if j.locked],
                "joints have equal limits, are locked and left out",
            ),
            (
                [j.name for j in joints if j.endless and j.name not in urdf.endless],
                "joints state no limits or senseless ones, and are taken to have none",
            ),
            (
                [j.name for j in joints if not j.endless and (j.lower, j.upper) != limits[j.name]],
                "joints keep to narrower limits, those of the joints that follow them",
            ),
            (
                [name for name, info in named.items() if info[2] in _OF_MORE_AXES],
                "joints are planar or spherical; they move, and no action drives them",
            ),
            (urdf.floating, "joints are floating, and PyBullet welds them"),
            (urdf.weightless, "moving links state mass 0, and no motor moves such a link alone"),
            (
                sorted(name for name in axes if abs(axes[name] - 1) > _UNIT_AXIS_TOLERANCE),
                "axes are not of length 1, so their motors feel a wrong inertia",
            ),
            (urdf.without_mass, "links state no <inertial>, and PyBullet makes each 1 kg heavy"),
            (
                [joint.name for joint in driven if not 0 < joint.max_force < np.inf],
                "joints state no effort limit; the forces in the file are guessed from the "
                "robot's weight",
            ),
        )
        if names
    ]


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return printable(", ".join(names[:_MOST_NAMED])) + more

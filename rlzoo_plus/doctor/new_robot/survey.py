"""Measures a robot as an engine loads it, and guesses whether its base is fixed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.doctor.new_robot.base_guess import guess_base, is_endless
from rlzoo_plus.doctor.new_robot.model_file import GROUND, ModelFile
from rlzoo_plus.errors import ConfigError
from robots.simulation import JointInfo, Mimic, Simulation

# Above the ground, so that the distance can be measured.
_ALOFT_M = 5.0
_MOST_NAMED = 5
_STEPS_TO_SEE_IT_MOVE = 10


@dataclass(frozen=True, kw_only=True)
class JointSurvey(JointInfo):
    """A movable joint."""

    endless: bool  # Whether it has no limits
    locked: bool  # Whether its limits are equal, so that it cannot move
    rest: float  # Rest position


@dataclass(frozen=True)
class RobotSurvey:
    """What must be known about a robot to write an environment for it."""

    # Its movable joints, in the order of the file, but for those that follow another
    joints: list[JointSurvey]
    mimic: tuple[Mimic, ...]  # The joints that follow another one
    mass_kg: float  # Mass of all links
    stands_free: bool  # Whether its base is probably not fixed
    reason: str  # Why that is so
    # Height of the base's center of mass when the lowest point touches the ground; None without
    # collision shapes
    height_m: float | None
    # Orientation of the base's principal axes when the file's axes are those of the world,
    # quaternion (x, y, z, w)
    orientation: tuple[float, float, float, float]
    # Middle of the robot, relative to the origin of its base [m]
    middle: tuple[float, float, float]
    size_m: tuple[float, float, float]  # Lengths of its edges
    notes: list[str] = field(default_factory=list)  # What the user should know

    def without(self, joints: Collection[str]) -> RobotSurvey:
        """Return the same without some joints, which are then passive."""
        return replace(self, joints=[one for one in self.joints if one.name not in joints])


def survey(file: ModelFile, rest: Sequence[str] = ()) -> RobotSurvey:
    """Load a robot and measure it.

    Args:
        file: The file.
        rest: Rest positions as `PATTERN=VALUE` [rad or m]; joints that no pattern matches rest
            where the file says, or else at 0, or in the middle of their range if 0 is outside.

    Raises:
        ConfigError: The engine cannot load it, or a rest position is wrong.
    """
    with file.world() as simulation:
        body = file.load(simulation, _ALOFT_M, is_free=True)
        every = _joints(simulation, body, file)
        led = [joint for joint in every if joint.name not in file.mimic]
        joints = _at_rest([joint for joint in led if not joint.locked], rest)
        at = {joint.name: joint.rest for joint in [*every, *joints]}
        for name, mimic in file.mimic.items():
            at[name] = mimic.multiplier * at[mimic.leader] + mimic.offset
        indices = [joint.index for joint in every]
        positions = [at[joint.name] for joint in every]
        simulation.reset_joints(body, indices, positions, [0.0] * len(every))
        found = _measure(simulation, body, file, joints)
        _check_motion(simulation, body, indices, file)
        found.notes.extend(_notes(simulation, body, file, every))
        if found.height_m is None:
            found.notes.append(
                "no link has a <collision> shape: a free robot falls through the ground"
            )
        return found


def _joints(simulation: Simulation, body: int, file: ModelFile) -> list[JointSurvey]:
    """Return the movable joints, each at rest at 0 or in the middle of its range."""
    joints = {}
    for joint in simulation.movable_joints(body):
        endless = is_endless(joint, file)
        joints[joint.name] = JointSurvey(
            **asdict(joint),
            endless=endless,
            locked=not endless and joint.lower == joint.upper,
            rest=0.0,
        )
    for mimic in file.mimic.values():
        joints[mimic.leader] = _narrowed(joints[mimic.leader], joints[mimic.joint], mimic)
    return [_resting(joint, file.rest.get(joint.name, 0.0)) for joint in joints.values()]


def _narrowed(leader: JointSurvey, follower: JointSurvey, mimic: Mimic) -> JointSurvey:
    """Return a joint with limits that keep the joint that follows it within its own."""
    if follower.endless or not mimic.multiplier:
        return leader
    ends = [(end - mimic.offset) / mimic.multiplier for end in (follower.lower, follower.upper)]
    lower, upper = min(ends), max(ends)
    if not leader.endless:
        lower, upper = max(lower, leader.lower), min(upper, leader.upper)
    return replace(leader, lower=lower, upper=upper, endless=False) if lower < upper else leader


def _resting(joint: JointSurvey, stated: float) -> JointSurvey:
    is_within = joint.endless or joint.lower <= stated <= joint.upper
    return replace(joint, rest=stated if is_within else (joint.lower + joint.upper) / 2)


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
    simulation: Simulation, body: int, file: ModelFile, joints: list[JointSurvey]
) -> RobotSurvey:
    simulation.forget_contacts()  # Boxes are those of the last look for contacts.
    position, orientation = simulation.pose_reader(body)()
    places = simulation.link_places(body)
    masses = simulation.link_dynamics(body)
    boxes = np.array(
        [
            place.box or (place.centre, place.centre)
            for link, place in enumerate(places, start=-1)
            if place.box or masses[link].mass_kg > 0
        ]
    ).reshape(-1, 2, 3)
    mass = sum(link.mass_kg for link in masses.values())
    if mass <= 0:
        raise ConfigError(
            f"{file.option} {file.path}: all links together weigh {mass:g} kg. State the <mass> "
            "of each."
        )
    lowest, highest = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    clearance = simulation.clearance_m(body, GROUND) if any(one.box for one in places) else None
    stands_free, reason = guess_base(simulation, body, file)
    # A free MJCF says itself where it is; it will be placed elsewhere.
    origin = places[0].centre if file.is_free else (0.0, 0.0, _ALOFT_M)
    x, y, z, w = orientation
    return RobotSurvey(
        joints=joints,
        mimic=tuple(file.mimic.values()),
        mass_kg=mass,
        stands_free=stands_free,
        reason=reason,
        height_m=None if clearance is None else position[2] - clearance,
        orientation=(x, y, z, w),
        middle=tuple(((lowest + highest) / 2 - origin).tolist()),
        size_m=tuple((highest - lowest).tolist()),
    )


def _check_motion(
    simulation: Simulation, body: int, joints: Sequence[int], file: ModelFile
) -> None:
    """Refuse a robot that does not fall as a body does."""
    for _ in range(_STEPS_TO_SEE_IT_MOVE):
        simulation.step()
    positions = simulation.joint_reader(body, joints)()[: len(joints)]
    base = simulation.pose_reader(body)()[0]
    if not np.isfinite([*positions, *base]).all():
        raise ConfigError(
            f"{file.option} {file.path}: {simulation.engine} computes positions that are no "
            "numbers. State the <mass> and <inertia> of every link that a joint moves, all above 0."
        )


def _notes(
    simulation: Simulation, body: int, file: ModelFile, joints: list[JointSurvey]
) -> list[str]:
    """Return where the engine does not do what the file says, and what is guessed."""
    limits = {one.name: (one.lower, one.upper) for one in simulation.movable_joints(body)}
    own = [j for j in joints if not j.locked and j.name not in {*file.mimic, *file.undriven}]
    guessed = [joint.name for joint in own if not 0 < joint.max_force < np.inf]
    texts = (
        (
            [f"{one.joint} (as {one.leader})" for one in file.mimic.values()],
            "joints follow another one and have no action of their own",
        ),
        ([j.name for j in joints if j.locked], "joints have equal limits, are locked and left out"),
        (
            [j.name for j in joints if j.endless and j.name not in file.endless],
            "joints state no limits or senseless ones, and are taken to have none",
        ),
        (
            [j.name for j in joints if not j.endless and (j.lower, j.upper) != limits[j.name]],
            "joints keep to narrower limits, those of the joints that follow them",
        ),
        (
            [joint.name for joint, _ in simulation.further_joints(body)],
            "joints are planar or spherical; they move, and no action drives them",
        ),
        *file.remarks,
        (
            guessed,
            "joints state no effort limit; the forces in the file are guessed from the robot's "
            "weight",
        ),
    )
    told = [f"{len(names)} {text}: {_some(names)}" for names, text in texts if names]
    return [*told, *file.said]


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return printable(", ".join(names[:_MOST_NAMED])) + more

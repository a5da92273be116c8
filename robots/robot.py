"""A robot: its specification, and its joints in a simulation with the effect of an action."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.camera import Quaternion, Vector3
from robots.drives import (
    JOINT_DRIVES,
    ActionMode,
    CombinedDrive,
    Drive,
    EndEffectorDrive,
    JoinedDrive,
    MixedDrive,
    Motors,
    PositionDrive,
)
from robots.sensors import SensorSpec
from robots.simulation import JointInfo, Mimic, RobotFile, Simulation, matching

__all__ = ["ActionMode", "InitialState", "Mimic", "Robot", "RobotSpec"]

Numbers = Sequence[float] | NDArray[np.float64]

# Strength of the gears of joints that follow another one [N m or N].
_MIMIC_FORCE = 1e4

PerJoint = float | tuple[float, ...]
"""One value for all actuated joints, or one for each."""


class InitialState(NamedTuple):
    """Where one world starts an episode; None leaves what the world was built with."""

    joint_position: Numbers
    """Of the joints that are read [rad or m], shape (n_joints,)."""
    joint_velocity: Numbers
    """[rad/s or m/s], shape (n_joints,)."""
    base_position: Numbers | None = None
    """World position of the base's centre of mass [m]; for a free base."""
    base_orientation: Numbers = (0.0, 0.0, 0.0, 1.0)
    """Quaternion (x, y, z, w); for a free base, if it has a position."""
    base_velocity: Numbers = (0.0, 0.0, 0.0)
    """World frame [m/s]."""
    base_angular_velocity: Numbers = (0.0, 0.0, 0.0)
    """World frame [rad/s]."""
    object_position: NDArray[np.float64] | None = None
    """World positions of the objects' centres of mass [m], shape (n_objects, 3)."""
    object_orientation: NDArray[np.float64] | None = None
    """Quaternions (x, y, z, w), shape (n_objects, 4); upright if None."""
    obstacle_position: NDArray[np.float64] | None = None
    """World positions of the objects without a mass [m], shape (n_obstacles, 3)."""
    ground: tuple[Vector3, Quaternion] | None = None
    """World position [m] and orientation of an uneven ground."""
    memory: dict[str, NDArray[np.float64]] = {}  # noqa: RUF012
    """What the task keeps of the episode, such as a goal: arrays of shape () or (n,)."""
    partners: tuple["InitialState", ...] = ()
    """Where the world's further robots start; at rest where there is none for one."""


@dataclass(frozen=True)
class RobotSpec:
    """Everything that makes a robot, before there is a simulation."""

    urdf: str
    """File of the URDF, also searched for in ``pybullet_data``. Ending in .xml, it is read as
    MJCF, which says itself where its base is and whether it is free."""
    action_scale: PerJoint
    """Meaning of the action 1: [N m or N], [rad/s or m/s], [rad or m] by mode."""
    action_mode: ActionMode = ActionMode.TORQUE
    """What an action commands."""
    joints: str = ".*"
    """Pattern of the names of the joints that are read and reset; the others stay passive."""
    actuated: str = ".*"
    """Pattern of the names, among those joints, that actions drive."""
    positioned: str | None = None
    """Pattern of the names, among the actuated joints, that velocity mode drives to positions
    instead, such as steering hinges."""
    mixing: tuple[tuple[float, ...], ...] | None = None
    """Share of every entry of the action in the command of each actuated joint, one row per joint;
    clipped to [-1, 1] before ``action_scale``. None: one entry a joint."""
    held: str | None = None
    """Pattern of the names, among the read joints, that motors hold at their rest position."""
    mimic: tuple[Mimic, ...] = ()
    """Joints that follow another one, as the ``<mimic>`` of a URDF says, and that no action
    drives."""
    gripper: str | None = None
    """Pattern of the names, among the read joints, of fingers that move alike: one more entry of
    the action opens them at 1 and closes them at -1, within the limits that the URDF gives."""
    rest_position: tuple[float, ...] | None = None
    """Rest position of the read joints [rad or m]; zeros if None."""
    max_force: PerJoint | None = None
    """Strength of the motors [N m or N], but in torque mode; the URDF's if None."""
    max_velocity: PerJoint | None = None
    """Highest velocity that the motors drive the actuated joints to [rad/s or m/s]; None: any.
    Bullet's motors brake what is faster; torques, also those of pd mode, only cease to drive it."""
    joint_limits: tuple[tuple[float, float], ...] | None = None
    """Lower and upper limit of each actuated joint [rad or m]; the URDF's if None."""
    position_gain: PerJoint | None = None
    """In position modes, share of the error corrected in a physics step, in (0, 1]; Bullet's if
    None. In pd mode [N m/rad or N/m]."""
    velocity_gain: PerJoint | None = None
    """In position modes, share of the velocity error corrected in a physics step; Bullet's if None.
    In pd mode [N m s/rad or N s/m]."""
    base_position: Vector3 = (0.0, 0.0, 0.0)
    """World position of the base [m]."""
    base_orientation: Quaternion = (0.0, 0.0, 0.0, 1.0)
    """World orientation of the base, quaternion (x, y, z, w)."""
    fixed_base: bool = True
    """Whether the base is bolted to the world."""
    self_collision: bool = False
    """Whether links that are not neighbours collide with each other."""
    ancestor_collision: bool = True
    """With ``self_collision``, whether that holds for links that hang from each other."""
    keep_damping: bool = False
    """Leave the damping as the file and Bullet have it; otherwise there is none."""
    keep_joints: bool = False
    """Leave springs, damping and armature of joints as an MJCF has them, which MuJoCo alone reads;
    otherwise there are none."""
    inertia_from_file: bool = False
    """Take moments of inertia from the URDF; otherwise Bullet computes them from the shapes."""
    massless_links: str | None = None
    """Pattern of the names of links for which the URDF states no inertia: they get 1 g, where
    Bullet assumes 1 kg."""
    ballast_m: float | None = None
    """Add links without weight to a URDF at this distance from the centre of mass of the trunk,
    for the ``com_offset`` of randomization, which sets it; None: do not."""
    sensors: SensorSpec = field(default_factory=SensorSpec)
    """What is read in addition to the joints."""
    end_effector: str | None = None
    """Name of the link that end_effector mode moves."""
    ik_orientation: Quaternion | None = None
    """World orientation that the end effector keeps in that mode; None: any."""
    ik_turns: bool = False
    """In that mode, actions have three more entries, turns about the axes of the world."""
    ik_workspace: tuple[Vector3, Vector3] | None = None
    """In that mode, lowest and highest world position that is aimed at [m]."""


class Robot:
    """A ``RobotSpec`` loaded into a simulation.

    Attributes:
        body: Id of the body in the simulation.
        joints: The joints that are read, in the order of the state's last dimension.
        actuated: The joints that are driven, in the order of the action.
        rest_position: [rad or m], shape (n_joints,).
        at_rest: The same as the initial state of an episode.
        drive: What turns actions into motion.
        without_motor: The movable joints that no motor holds: passive ones, and those that torques
            drive.
    """

    def __init__(self, simulation: Simulation, spec: RobotSpec) -> None:
        """Load the robot and put it into its rest position.

        Args:
            simulation: World to load it into. Made with ``hold_torques`` for torques, and
                without for the other modes.
            spec: What to load.

        Raises:
            ValueError: If a pattern matches no joint, or the rest position has a wrong length.
        """
        self._simulation = simulation
        self.body = self._load(spec)
        if spec.massless_links is not None:
            links = simulation.links(self.body).items()
            for link in matching("massless_links", spec.massless_links, links, "link"):
                simulation.set_mass(self.body, link, 1e-3, (1e-6, 1e-6, 1e-6))
        self.joints = _named("joints", spec.joints, simulation.movable_joints(self.body))
        self.actuated = _named("actuated", spec.actuated, self.joints)
        rest = (0.0,) * len(self.joints) if spec.rest_position is None else spec.rest_position
        if len(rest) != len(self.joints):
            names = ", ".join(joint.name for joint in self.joints)
            raise ValueError(
                f"rest_position={rest} has {len(rest)} values for {len(self.joints)} joints. "
                f"Give one each for: {names}."
            )
        self.rest_position = np.array(rest, np.float64)
        self.free_base = not spec.fixed_base
        self.mimic = spec.mimic
        self._joint_indices = [joint.index for joint in self.joints] + self._couple(spec.mimic)
        drive = self._make_drive(spec)
        self.drive = drive if spec.mixing is None else MixedDrive(drive, spec.mixing)
        if spec.gripper is not None:
            self.drive = JoinedDrive([self.drive, self._make_gripper(spec.gripper)])
        held = [] if spec.held is None else _named("held", spec.held, self.joints)
        by_torques = spec.action_mode in (ActionMode.TORQUE, ActionMode.PD)
        fingers = [] if spec.gripper is None else _named("gripper", spec.gripper, self.joints)
        moved = [] if by_torques else self.actuated
        motors = {joint.name for joint in (*moved, *held, *fingers)}
        motors |= {one.joint for one in spec.mimic}
        movable = simulation.movable_joints(self.body)
        self.without_motor = [joint for joint in movable if joint.name not in motors]
        self._held_at = [float(rest[self.joints.index(joint)]) for joint in held]
        self._hold = simulation.position_motors(self.body, [joint.index for joint in held])
        self._hold_force = [joint.max_force for joint in held]
        self.at_rest = InitialState(self.rest_position, np.zeros(len(self.joints)))
        self.reset(self.at_rest)

    def reset(self, start: InitialState) -> None:
        """Put the joints, and a free base, where an episode starts."""
        position, velocity = start.joint_position, start.joint_velocity
        if self.mimic:
            position, velocity = self._with_followers(position, velocity)
        self._simulation.reset_joints(self.body, self._joint_indices, position, velocity)
        if start.base_position is not None:
            self._simulation.reset_base(
                self.body,
                start.base_position,
                start.base_orientation,
                start.base_velocity,
                start.base_angular_velocity,
            )
        if self._held_at:
            self._hold(self._held_at, self._hold_force)

    def _couple(self, mimic: tuple[Mimic, ...]) -> list[int]:
        """Couple the joints that follow another one; return their indices."""
        movable = {joint.name: joint.index for joint in self._simulation.movable_joints(self.body)}
        driven = {joint.name for joint in self.actuated}
        for one in mimic:
            for name in (one.joint, one.leader):
                matching("mimic", re.escape(name), zip(movable, movable, strict=True), "joint")
            if one.joint in driven:
                raise ValueError(
                    f"mimic: {one.joint} follows {one.leader} and cannot be driven itself. Leave "
                    "it out of actuated."
                )
            self._simulation.couple(
                self.body,
                movable[one.joint],
                movable[one.leader],
                ratio=one.multiplier,
                offset=one.offset,
                max_force=_MIMIC_FORCE,
            )
        return [movable[one.joint] for one in mimic]

    def _with_followers(self, position: Numbers, velocity: Numbers) -> tuple[Numbers, Numbers]:
        """Return positions and velocities of the read joints, and of those that follow."""
        names = [joint.name for joint in self.joints]
        at, moving = (dict(zip(names, values, strict=True)) for values in (position, velocity))
        places = [one.multiplier * at.get(one.leader, 0.0) + one.offset for one in self.mimic]
        speeds = [one.multiplier * moving.get(one.leader, 0.0) for one in self.mimic]
        return [*position, *places], [*velocity, *speeds]

    def _load(self, spec: RobotSpec) -> int:
        file = RobotFile(
            spec.urdf,
            position=spec.base_position,
            orientation=spec.base_orientation,
            fixed_base=spec.fixed_base,
            self_collision=spec.self_collision,
            ancestor_collision=spec.ancestor_collision,
            inertia_from_file=spec.inertia_from_file,
            keep_damping=spec.keep_damping,
            keep_joints=spec.keep_joints,
            ballast_m=spec.ballast_m,
        )
        return self._simulation.load_robot(file)

    def _make_drive(self, spec: RobotSpec) -> Drive:
        motors = self._motors(spec)
        mode = ActionMode(spec.action_mode)
        if spec.positioned is not None:
            if mode is not ActionMode.VELOCITY:
                raise ValueError(
                    f"positioned={spec.positioned!r} needs action_mode=velocity, not {mode}."
                )
            chosen = _named("positioned", spec.positioned, self.actuated)
            return CombinedDrive(motors, [self.actuated.index(joint) for joint in chosen])
        if mode is not ActionMode.END_EFFECTOR:
            return JOINT_DRIVES[mode](motors)
        links = self._simulation.links(self.body)
        if spec.end_effector not in links:
            raise ValueError(
                f"end_effector={spec.end_effector!r} is no link of {spec.urdf}. Choose among: "
                f"{', '.join(links)}."
            )
        link, keep = links[spec.end_effector], spec.ik_orientation
        return EndEffectorDrive(motors, link, keep, spec.ik_turns, spec.ik_workspace)

    def _make_gripper(self, pattern: str) -> Drive:
        fingers = _named("gripper", pattern, self.joints)
        limits = [(joint.lower, joint.upper) for joint in fingers]
        if any(lower >= upper for lower, upper in limits):
            raise ValueError(
                f"gripper={pattern!r}: the fingers need limits in the URDF, to open and to close "
                f"to; {', '.join(joint.name for joint in fingers)} have {limits}."
            )
        for other in fingers[1:]:
            self._simulation.couple(self.body, fingers[0].index, other.index)
        lower, upper = np.array(limits, np.float64).T
        motors = Motors(
            simulation=self._simulation,
            body=self.body,
            joints=fingers,
            read_columns=[self.joints.index(joint) for joint in fingers],
            scale=0.5 * (upper - lower),
            centre=0.5 * (lower + upper),
            lower=lower,
            upper=upper,
            max_force=[joint.max_force for joint in fingers],
            position_gain=None,
            velocity_gain=None,
            max_velocity=[joint.max_velocity or np.inf for joint in fingers],
        )
        return MixedDrive(PositionDrive(motors), ((1.0,),) * len(fingers))

    def _motors(self, spec: RobotSpec) -> Motors:
        count = len(self.actuated)
        columns = [self.joints.index(joint) for joint in self.actuated]
        limits = spec.joint_limits or tuple(
            (joint.lower, joint.upper) if joint.lower < joint.upper else (-np.inf, np.inf)
            for joint in self.actuated
        )
        if len(limits) != count:
            raise ValueError(
                f"joint_limits={limits} has {len(limits)} pairs for {count} actuated joints. "
                f"Give one each for: {', '.join(joint.name for joint in self.actuated)}."
            )
        lower, upper = np.array(limits, np.float64).T
        is_ik = spec.action_mode == ActionMode.END_EFFECTOR
        n_actions = (6 if spec.ik_turns else 3) if is_ik else count
        forces = spec.max_force
        if forces is None:
            forces = tuple(joint.max_force for joint in self.actuated)
        position_gain, velocity_gain, max_velocity = (
            None if value is None else _per_joint(name, value, count)
            for name, value in (
                ("position_gain", spec.position_gain),
                ("velocity_gain", spec.velocity_gain),
                ("max_velocity", spec.max_velocity),
            )
        )
        if max_velocity is not None and not min(max_velocity) > 0:
            raise ValueError(
                f"max_velocity={spec.max_velocity} must be above 0, or no motor would turn. Set "
                "that of the data sheet [rad/s or m/s], or None for any."
            )
        return Motors(
            simulation=self._simulation,
            body=self.body,
            joints=self.actuated,
            read_columns=columns,
            scale=np.array(_per_joint("action_scale", spec.action_scale, n_actions)),
            centre=self.rest_position[columns],
            lower=lower,
            upper=upper,
            max_force=_per_joint("max_force", forces, count),
            position_gain=position_gain,
            velocity_gain=velocity_gain,
            max_velocity=max_velocity,
        )


def _named(name: str, pattern: str, joints: list[JointInfo]) -> list[JointInfo]:
    return matching(name, pattern, [(joint.name, joint) for joint in joints], "joint")


def _per_joint(name: str, value: PerJoint, count: int) -> list[float]:
    """Return one value for each of the joints, or of the entries of an action."""
    values = [float(value)] * count if isinstance(value, int | float) else [*map(float, value)]
    if len(values) != count:
        raise ValueError(
            f"{name}={value} has {len(values)} values. Give one for all, or one for each of "
            f"{count}."
        )
    return values

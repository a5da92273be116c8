"""Facts about the robot of an environment, read from its simulation."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from robots.drives import Drive, EndEffectorDrive, JoinedDrive, TorqueDrive, WrappedDrive
from robots.env import BaseRobotEnv

# Share of the way back to its limit that a joint outside of it is pushed in a step.
_PUSHED_SHARE = 0.05
# Deeper than this and the first step pushes the robot out of the ground.
_DEEPEST_START_M = 0.002
_HIGHEST_START_M = 0.1
_MOST_NAMED = 5


@dataclass(frozen=True)
class JointRow:
    """A joint as it is used."""

    name: str  # Its name in the URDF
    kind: str  # `revolute`, `prismatic`, `planar` or `spherical`
    unit: str  # Of its position: `rad` or `m`
    max_force: float  # Maximum force of its motor, or that of the URDF if it has none [N m or N]
    limits: tuple[float, float] | None = None  # Lower and upper limit; equal limits lock it
    rest: float | None = None  # Rest position; None if it is not read
    # Highest velocity that its motor drives to [rad/s or m/s]; None: any
    max_velocity: float | None = None
    scale: float | None = None  # What the action 1 commands; None if no action drives it by itself
    # `driven` by actions, `read` by the sensors alone, `passive`, or `follows` and the joint that
    # leads it
    use: str = "passive"


@dataclass(frozen=True)
class RobotFacts:
    """A robot in its simulation."""

    joints: list[JointRow]  # Its movable joints
    masses_kg: dict[str, float]  # Masses of its links by name, without those of mass 0
    free_base: bool  # Whether its base moves
    action_mode: str  # What an action commands
    step_s: float  # Simulated time of one action [s]
    episode_steps: int  # Actions of a whole episode
    weights: dict[str, float]  # Weight of every term of the reward
    # From the ground to the lowest point at the start; None without a ground
    clearance_m: float | None
    notes: list[str]  # What is doubtful


def robot_facts(env: BaseRobotEnv) -> RobotFacts:
    """Return the facts about an environment's robot; it is left at the start of an episode."""
    env.reset(seed=0)
    links = env.simulation.links(env.robot.body)
    dynamics = env.simulation.link_dynamics(env.robot.body)
    masses = {name: dynamics[index].mass_kg for name, index in links.items()}
    made_up = env.simulation.made_up_links(env.robot.body)
    ground = env.world.ground
    drive = type(_drives(env.robot.drive)[0]).__name__.removesuffix("Drive")
    facts = RobotFacts(
        joints=_joints(env),
        masses_kg={name: mass for name, mass in masses.items() if mass > 0},
        free_base=env.robot.free_base,
        action_mode=re.sub(r"(?<=.)([A-Z])", r"_\1", drive).lower(),
        step_s=env.simulation.step_s,
        episode_steps=env.max_episode_steps,
        weights=dict(env.task.weights),
        clearance_m=None if ground is None else env.simulation.clearance_m(env.robot.body, ground),
        notes=[],
    )
    facts.notes.extend(_notes(facts, made_up, _pushed_back(env, facts.joints)))
    if not np.isfinite(env.readings).all():
        facts.notes.append("the sensors read values that are not finite")
    return facts


def _drives(drive: Drive) -> list[Drive]:
    """Return the drives that command motors: what others wrap or join."""
    if isinstance(drive, WrappedDrive):
        return _drives(drive.wrapped)
    if isinstance(drive, JoinedDrive):
        return [one for joined in drive.drives for one in _drives(joined)]
    return [drive]


def _pushed_back(env: BaseRobotEnv, joints: list[JointRow]) -> list[str]:
    """Return the joints that start outside of their limits, but for limits that do not bind.

    Bullet does not push a joint back that an MJCF lets start outside.
    """
    ends = {
        joint.name: min(max(joint.rest, joint.limits[0]), joint.limits[1])
        for joint in joints
        if joint.limits and joint.rest is not None
        if not joint.limits[0] - 1e-6 <= joint.rest <= joint.limits[1] + 1e-6
    }
    # Motors hold it there whether or not the limits bind.
    if not ends or not isinstance(_drives(env.robot.drive)[0], TorqueDrive):
        return list(ends)
    names = [joint.name for joint in env.robot.joints]
    before = dict(zip(names, env.state.joint_position.tolist(), strict=True))
    env.step(np.zeros(env.action_space.shape or (), np.float32))
    after = dict(zip(names, env.state.joint_position.tolist(), strict=True))
    env.reset(seed=0)
    return [
        name
        for name, end in ends.items()
        if (after[name] - before[name]) / (end - before[name]) > _PUSHED_SHARE
    ]


def _joints(env: BaseRobotEnv) -> list[JointRow]:
    robot = env.robot
    rests = robot.rest_position.tolist()
    read = {joint.index: rest for joint, rest in zip(robot.joints, rests, strict=True)}
    driven = {
        joint.index: (drive, number)
        for drive in _drives(robot.drive)
        if drive.motors.body == robot.body
        for number, joint in enumerate(drive.motors.joints)
    }
    leaders = {one.joint: one.leader for one in robot.mimic}
    rows = []
    for joint in env.simulation.movable_joints(robot.body):
        drive, number = driven.get(joint.index, (None, 0))
        motors = None if drive is None else drive.motors
        # The end effector's scale is one of displacements.
        has_scale = motors is not None and not isinstance(drive, EndEffectorDrive)
        tops = motors.max_velocity if motors else None
        use = "read" if joint.index in read else "passive"
        if joint.name in leaders:
            use = f"follows {leaders[joint.name]}"
        rows.append(
            JointRow(
                name=joint.name,
                kind="prismatic" if joint.slides else "revolute",
                unit="m" if joint.slides else "rad",
                limits=(joint.lower, joint.upper) if joint.lower <= joint.upper else None,
                rest=read.get(joint.index),
                max_force=motors.max_force[number] if motors else joint.max_force,
                max_velocity=tops[number] if tops else None,
                scale=float(motors.scale[number]) if motors and has_scale else None,
                use="driven" if motors else use,
            )
        )
    return rows + [
        JointRow(joint.name, kind, "rad", joint.max_force)
        for joint, kind in env.simulation.further_joints(robot.body)
    ]


def _notes(facts: RobotFacts, made_up: list[str], outside: list[str]) -> list[str]:
    notes = []
    if made_up:
        notes.append(
            f"{len(made_up)} links without a shape weigh exactly 1 kg, which PyBullet makes up "
            f"where a URDF states no <inertial>: {_some(made_up)}"
        )
    weak = [joint.name for joint in facts.joints if joint.use == "driven" and joint.max_force <= 0]
    if weak and facts.action_mode != "torque":
        notes.append(f"motors without strength move nothing; set max_force for {_some(weak)}")
    locked = [
        joint.name
        for joint in facts.joints
        if joint.use == "driven" and joint.limits and joint.limits[0] == joint.limits[1]
    ]
    if locked:
        notes.append(f"equal limits lock joints that are driven; leave out {_some(locked)}")
    if outside:
        notes.append(f"the rest position is outside of the limits of {_some(outside)}")
    clearance = facts.clearance_m
    if clearance is not None and clearance < -_DEEPEST_START_M:
        notes.append(f"it starts {-clearance:.3f} m deep in the ground, which will throw it up")
    if clearance is not None and facts.free_base and clearance > _HIGHEST_START_M:
        notes.append(f"it starts {clearance:.2f} m above the ground and falls first")
    return notes


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")

"""The shield of a world: what it has to know, read from robot, motors and engine."""

from collections.abc import Callable
from typing import Any

import numpy as np

from robots.chain import Chain, chain_to, loads
from robots.drives import (
    ActionMode,
    CombinedDrive,
    Drive,
    EndEffectorDrive,
    JoinedDrive,
    Motors,
    PdDrive,
    PositionDrive,
    TorqueDrive,
    VelocityDrive,
    commanding_drive,
)
from robots.frames import Floats
from robots.shield import Changes, JointModel, Shield
from robots.simulation import POSITION_GAIN, VELOCITY_GAIN
from robots.world import World


def make_shield(
    world: World,
    mode: ActionMode,
    *,
    position: tuple[Any, Any],
    velocity: Floats | None,
    torque: Floats | None,
    action_rate: float | None,
    workspace: tuple[Chain, Floats] | None,
    deceleration: Floats | None,
    strongest: float,
) -> Shield:
    """Return the shield of the first robot of a world, whose motors it keeps below the torque.

    Args:
        world: The robot at rest in its surroundings.
        mode: How it is driven.
        position: Lower and upper limits of the driven joints [rad or m], or None for each.
        velocity: Greatest velocities [rad/s or m/s].
        torque: Greatest torques [N m or N].
        action_rate: Greatest change of an entry of the action in a step.
        workspace: The end effector and its box.
        deceleration: Least that the motors have [rad/s^2 or m/s^2]; that of the masses if None.
        strongest: Greatest factor on the strength of the motors.

    Raises:
        ValueError: The shield does not know how the drive moves the joints.
    """
    drive, simulation = driving(world.robot.drive), world.simulation
    motors = drive.motors
    passive = {joint.index for joint in world.robot.without_motor} - set(motors.indices)
    found = loads(simulation, world.robot.body, motors.indices, passive)
    force = np.array(motors.max_force)
    if mode is ActionMode.TORQUE:
        force = np.minimum(force, np.abs(motors.scale))
    if torque is not None:
        force = np.minimum(force, torque / max(strongest, 1.0))
        if mode is not ActionMode.TORQUE:
            motors.max_force = force.tolist()
    names = ("most", "least", "weight", "push")
    most, least, weight, push = (np.array([getattr(one, name) for one in found]) for name in names)
    if deceleration is not None:
        if not (deceleration > 0).all():
            raise ValueError(
                f"safety.deceleration={deceleration.tolist()} must be above 0. Set the least that "
                "the motors have with the heaviest load [rad/s^2 or m/s^2]."
            )
        weight, push = np.zeros_like(force), np.zeros_like(force)
        most = force / deceleration
    if workspace is not None and mode in (ActionMode.TORQUE, ActionMode.PD):
        raise ValueError(
            f"safety.workspace cannot be kept by a shield with action_mode={mode}, which commands "
            "no velocity. Use another on_violation, or leave it out."
        )
    lower, upper = position
    joints = JointModel(
        lower=motors.lower if lower is None else lower,
        upper=motors.upper if upper is None else upper,
        force=force,
        inertia=most,
        least_inertia=np.minimum(least, most),
        weight=weight,
        push=push,
        fastest=np.array(motors.fastest),
        **_response(drive, simulation.step_s / simulation.substeps),
    )
    return Shield(
        joints,
        simulation.step_s,
        braking=lower is not None,
        max_velocity=velocity,
        max_torque=torque,
        max_action_rate=action_rate,
        workspace=workspace,
    )


def chain_of(world: World, link: str | None) -> Chain:
    """Return the way to the end effector of the first robot of a world.

    Args:
        world: The robot at rest in its surroundings.
        link: Name of the link; None: the one that its actions move, or the only one that is read.

    Raises:
        ValueError: There is no such link, or its base moves.
    """
    robot = world.robot
    drive, links = driving(robot.drive), world.simulation.links(robot.body)
    if link is None and isinstance(drive, EndEffectorDrive):
        number = drive.link
    else:
        if link is None and len(world.sensors.links) == 1:
            (link,) = world.sensors.links
        if link not in links:
            raise ValueError(
                f"safety.end_effector={link!r} is no link of the robot. Choose among: "
                f"{', '.join(links)}."
            )
        number = links[link]
    if robot.free_base:
        raise ValueError(
            "safety.workspace is a box in the world, and the base of this robot is free. Leave it "
            "out."
        )
    motors = drive.motors
    rest = robot.rest_position[motors.read_columns]
    return chain_to(world.simulation, robot.body, number, motors.indices, rest)


def driving(drive: Drive) -> Drive:
    """Return the drive of the joints that are watched: the first of those that are joined."""
    drive = commanding_drive(drive)
    while isinstance(drive, JoinedDrive):
        drive = commanding_drive(drive.drives[0])
    return drive


def _response(drive: Drive, substep_s: float) -> dict[str, Any]:
    """Return how the motors of a drive answer a target; see ``JointModel``."""
    motors = drive.motors
    count = len(motors.joints)
    zeros, ones = np.zeros(count), np.ones(count)
    if isinstance(drive, TorqueDrive):
        return {"rate": None, "follows": zeros, "kept": zeros}
    if isinstance(drive, VelocityDrive):
        return {"rate": ones, "follows": zeros, "kept": zeros}
    if isinstance(drive, PdDrive):
        stiffness, damping = np.array(motors.position_gain), np.array(motors.velocity_gain)
        _require_damping(damping)
        return {"rate": stiffness / damping, "follows": ones, "kept": zeros, "damping": damping}
    if not isinstance(drive, PositionDrive | CombinedDrive):
        raise ValueError(
            f"safety.on_violation='shield' does not know how {type(drive).__name__} drives the "
            "joints. Use a drive of robots.drives, or another on_violation."
        )
    gain = np.array(motors.position_gain or [POSITION_GAIN] * count)
    taken = np.array(motors.velocity_gain or [VELOCITY_GAIN] * count)
    _require_damping(taken)
    rate, follows, kept = gain / (substep_s * taken), ones, 1.0 - taken
    if isinstance(drive, CombinedDrive):
        rate[drive.turning], follows[drive.turning], kept[drive.turning] = 1.0, 0.0, 0.0
    return {"rate": rate, "follows": follows, "kept": kept}


def _require_damping(gains: Floats) -> None:
    if not (gains > 0).all():
        raise ValueError(
            f"safety.on_violation='shield' needs velocity_gain={gains.tolist()} above 0: without "
            "damping a motor does not drive to a velocity."
        )


def guard(world: World, shield: Shield, record: Callable[[Changes], None]) -> bool:
    """Let a world's inverse kinematics give its joints to a shield; return whether it has one.

    Args:
        world: The world.
        shield: Its shield.
        record: Called with what was changed.
    """
    drive = driving(world.robot.drive)
    if not isinstance(drive, EndEffectorDrive):
        return False
    motors: Motors = drive.motors
    read, count = motors.simulation.joint_reader(motors.body, motors.indices), len(motors.joints)

    def project(chosen: list[float]) -> list[float]:
        now = np.array(read())
        strength = motors.strength
        targets, changes = shield.project(np.array(chosen), now[:count], now[count:], strength)
        record(changes)
        changed: list[float] = targets.tolist()
        return changed

    drive.guard = project
    return True

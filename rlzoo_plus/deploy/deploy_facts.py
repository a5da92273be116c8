"""What a robot's folder says of its environment: rate, joints, limits, what it was trained with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.deploy.drive_commands import Affine, NotAffineError, affine_commands
from rlzoo_plus.deploy.shield_facts import shield_facts
from rlzoo_plus.deploy.wrapper_layers import WrapperChain
from rlzoo_plus.envs.batching import is_robot_of_ours
from robots.drives import (
    Drive,
    EndEffectorDrive,
    JoinedDrive,
    MixedDrive,
    TorqueDrive,
    VelocityDrive,
    commanding_drive,
)

_CONDITIONS = ("max_action_rate", "motor_strength", "randomization", "safety")


@dataclass(frozen=True)
class RobotFacts:
    """What is known of a robot's environment; nothing of a foreign one."""

    rate_hz: float | None = None  # Decisions a second
    engine: str | None = None
    observation_names: tuple[str, ...] = ()
    action_names: list[str] = field(default_factory=list)
    affine: Affine | None = None  # What its drive commands
    without_commands: str | None = "the environment is none of the robots"
    choices: Any = None  # The actions that a number chooses among
    max_action_rate: float | None = None
    joints: dict[str, Any] = field(default_factory=dict)
    safe_action: str | None = None
    trained_with: dict[str, Any] = field(default_factory=dict)
    shield: dict[str, Any] = field(default_factory=dict)  # As deploy.json has it


def facts_of_robot(
    env: gym.Env | None, config: RunConfig, chain: WrapperChain, unknown: str | None = None
) -> RobotFacts:
    """Return what is known of an environment.

    Args:
        env: The environment, None for one that cannot be made here.
        config: Its run.
        chain: Its wrappers.
        unknown: Why its arguments are not known, or why it cannot be made; None if it is whole.
    """
    names = tuple(getattr(env, "observation_names", ()))
    is_ours = env is not None and is_robot_of_ours(env)
    if unknown is not None and (is_ours or env is None):
        # It may have a shield, and other limits than the defaults.
        may_be_shielded = is_ours or config.env.kwargs.get("safety") is not None
        shield = {"shield": None, "no_shield_because": unknown} if may_be_shielded else {}
        return RobotFacts(observation_names=names, without_commands=unknown, shield=shield)
    if env is None or not is_ours:
        return RobotFacts(observation_names=names)
    bare: Any = env.unwrapped
    drive: Drive = bare.robot.drive
    affine, reason = None, None
    try:
        affine = affine_commands(drive)
    except NotAffineError as error:
        reason = str(error)
    step_s = bare.simulation.step_s
    kwargs = config.env.kwargs
    conditions = {name: kwargs[name] for name in _CONDITIONS if kwargs.get(name) is not None}
    latency = int(kwargs.get("latency") or 0) + chain.delay
    by_speed = isinstance(commanding_drive(drive), (TorqueDrive, VelocityDrive))
    return RobotFacts(
        # Engines keep the step in single precision.
        rate_hz=round(1.0 / (step_s * chain.skip), 4),
        engine=bare.simulation.engine,
        observation_names=tuple(bare.observation_names),
        action_names=[] if bare.discrete_actions is not None else _action_names(drive, affine),
        affine=affine,
        without_commands=reason,
        choices=bare.discrete_actions,
        max_action_rate=conditions.get("max_action_rate"),
        joints=_joints(bare.robot),
        safe_action="damp" if by_speed else "hold",
        trained_with={"latency_s": round(latency * step_s, 6), **conditions},
        shield=shield_facts(bare, chain, conditions.get("max_action_rate")),
    )


def _joints(robot: Any) -> dict[str, Any]:
    """Return the joints that are read, and those that are driven with their limits."""
    motors = commanding_drive(robot.drive).motors
    return {
        "read": [joint.name for joint in robot.joints],
        "rest_position": robot.rest_position.tolist(),
        "driven": [joint.name for joint in motors.joints],
        "unit": ["m" if joint.slides else "rad" for joint in motors.joints],
        "lower": motors.lower.tolist(),
        "upper": motors.upper.tolist(),
        "max_force": list(motors.max_force),
        "max_velocity": motors.fastest,
    }


def _action_names(drive: Drive, affine: Affine | None) -> list[str]:
    """Return the name of each entry of an action; nothing if an entry drives several joints."""
    if isinstance(drive, JoinedDrive):
        return [name for part in drive.drives for name in _action_names(part, None)]
    if isinstance(drive, EndEffectorDrive):
        return ["x", "y", "z", "turn x", "turn y", "turn z"][: drive.n_actions]
    if isinstance(drive, MixedDrive):
        return ["gripper"] if drive.n_actions == 1 and affine is None else []
    if drive.n_actions == len(drive.motors.joints):
        return [joint.name for joint in drive.motors.joints]
    return []

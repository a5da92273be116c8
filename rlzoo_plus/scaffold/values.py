"""What a generated environment begins with: how far, how fast and how strongly each joint acts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.scaffold.survey import JointSurvey, RobotSurvey

MODES = ("position", "delta_position", "velocity", "torque")
"""Action modes that need nothing but what a URDF states."""
_GRAVITY_M_S2 = 9.81
# Limits that URDFs state are often placeholders: no joint acts with more than these.
_FASTEST = {"angle": 10.0, "length": 1.0}
_USUAL_SPEED = {"angle": 5.0, "length": 0.5}
_USUAL_RANGE = {"angle": 1.5, "length": 0.1}
# About the rest position, where a free robot still stands.
_RANGE_OF_A_FREE_ROBOT = {"angle": 0.5, "length": 0.1}


@dataclass(frozen=True)
class JointValues:
    """What is written down for one joint.

    Attributes:
        name: Its name in the URDF.
        about: What the URDF says of it, for a comment.
        rest: Rest position [rad or m].
        lowest: Lowest position that is asked of it [rad or m].
        highest: Highest position that is asked of it [rad or m].
        scale: What the action 1 stands for.
        max_force: Strength of its motor [N m or N].
        turns: Whether it turns without limits.
    """

    name: str
    about: str
    rest: float
    lowest: float
    highest: float
    scale: float
    max_force: float
    turns: bool


def joint_values(robot: RobotSurvey, mode: str, *, is_free: bool) -> list[JointValues]:
    """Return values for every joint that are safe to begin with.

    Args:
        robot: What is known of it.
        mode: One of `MODES`.
        is_free: Whether its base moves.
    """
    weight_n = robot.mass_kg * _GRAVITY_M_S2
    values = []
    for joint in robot.joints:
        force = joint.max_force if joint.max_force > 0 else 0.5 * weight_n
        usual = _USUAL_RANGE[_unit(joint)]
        lowest = joint.rest - usual if joint.endless else joint.lower
        highest = joint.rest + usual if joint.endless else joint.upper
        if mode == "torque":
            scale = min(force, 0.5 * weight_n)
        else:
            scale = _scale(joint, mode, lowest, highest, is_free=is_free)
        values.append(
            JointValues(
                name=joint.name,
                about=_about(joint),
                rest=_short(joint.rest),
                lowest=_short(lowest),
                highest=_short(highest),
                scale=_short(scale),
                max_force=_short(force),
                turns=joint.endless and not joint.slides,
            )
        )
    return values


def _scale(joint: JointSurvey, mode: str, lowest: float, highest: float, *, is_free: bool) -> float:
    unit = _unit(joint)
    if mode == "velocity":
        return min(joint.max_velocity or _USUAL_SPEED[unit], _FASTEST[unit])
    if mode == "delta_position":
        return 0.1 * min(highest - lowest, _USUAL_RANGE[unit])
    reach = max(highest - joint.rest, joint.rest - lowest)
    return min(reach, _RANGE_OF_A_FREE_ROBOT[unit]) if is_free else reach


def _unit(joint: JointSurvey) -> str:
    return "length" if joint.slides else "angle"


def _about(joint: JointSurvey) -> str:
    length, force = ("m", "N") if joint.slides else ("rad", "N m")
    kind = "prismatic" if joint.slides else "revolute"
    limits = (
        "without limits" if joint.endless else f"{joint.lower:.4g} to {joint.upper:.4g} {length}"
    )
    words = [kind, limits]
    if joint.max_force > 0:
        words.append(f"{joint.max_force:.4g} {force}")
    if joint.max_velocity > 0:
        words.append(f"{joint.max_velocity:.4g} {length}/s")
    return printable(", ".join(words))


def _short(value: float) -> float:
    """Return a number with four digits, as a person would write it."""
    return float(f"{value:.4g}") if math.isfinite(value) else value

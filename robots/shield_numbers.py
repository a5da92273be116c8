"""A shield as plain numbers: written where the physics engine is, read where there is none."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from robots.chain import Chain
from robots.frames import Floats
from robots.shield import JointModel, Shield

MOST_JOINTS = 256
# What null means where a number can be infinite; JSON has no infinity.
_ENDLESS = {"lower": -np.inf, "upper": np.inf, "fastest": np.inf}
_OPTIONAL = ("rate", "damping")
_ABOVE_ZERO = ("inertia", "least_inertia", "rate", "damping")


def shield_numbers(shield: Shield, step_s: float) -> dict[str, Any]:
    """Return what ``read_shield`` reads, as JSON has it.

    Args:
        shield: The shield.
        step_s: Time from one command to the next where it is read [s].
    """
    joints = {one.name: getattr(shield.joints, one.name) for one in fields(JointModel)}
    chain = None if shield.workspace is None else vars(shield.workspace[0])
    return {
        "step_s": step_s,
        "braking": shield.braking,
        "max_velocity": _listed(shield.max_velocity),
        "max_torque": _listed(shield.max_torque),
        "max_action_rate": shield.max_action_rate,
        "joints": {name: _listed(values) for name, values in joints.items()},
        "chain": chain and {one.name: _listed(chain[one.name]) for one in fields(Chain)},
        "workspace": None if shield.workspace is None else _listed(shield.workspace[1]),
    }


def read_shield(numbers: Mapping[str, Any]) -> Shield:
    """Return the shield of ``shield_numbers``, whoever wrote them.

    Raises:
        KeyError, TypeError, ValueError: They are none.
    """
    count = len(numbers["joints"]["force"])
    if not 0 < count <= MOST_JOINTS:
        raise ValueError(f"a shield of {count} joints; 1 to {MOST_JOINTS} are read")
    known: dict[str, Any] = {
        one.name: _joint_values(one.name, numbers, count) for one in fields(JointModel)
    }
    rate = numbers["max_action_rate"]
    corners, limits = numbers["workspace"], (numbers["max_velocity"], numbers["max_torque"])
    velocity, torque = (None if x is None else read_array(x, (count,), least=0.0) for x in limits)
    step_s = _number(numbers["step_s"])
    if not step_s:
        raise ValueError("step_s must be above 0")
    return Shield(
        JointModel(**known),
        step_s,
        braking=numbers["braking"] is True,
        max_velocity=velocity,
        max_torque=torque,
        max_action_rate=None if rate is None else _number(rate),
        workspace=None
        if corners is None
        else (_chain(numbers, count), read_array(corners, (2, 3))),
    )


def _joint_values(name: str, numbers: Mapping[str, Any], count: int) -> Floats | None:
    values = numbers["joints"][name]
    if values is None and name in _OPTIONAL:
        return None
    found = read_array(values, (count,), _ENDLESS.get(name))
    if name in _ABOVE_ZERO and not (found > 0.0).all():
        raise ValueError(f"{name} of a joint must be above 0")
    if name == "kept" and not ((found >= 0.0) & (found < 1.0)).all():
        raise ValueError("kept must be from 0 to below 1")
    return found


def _chain(numbers: Mapping[str, Any], count: int) -> Chain:
    told = numbers["chain"]
    columns = tuple(int(column) for column in told["columns"])
    n = len(columns)
    if not n or not all(0 <= column < count for column in columns):
        raise ValueError(f"the chain names other joints than the {count} of the shield")
    return Chain(
        origins=read_array(told["origins"], (n, 3)),
        axes=read_array(told["axes"], (n, 3)),
        slides=tuple(read_array(told["slides"], (n,)).astype(bool).tolist()),
        end=read_array(told["end"], (3,)),
        rest=read_array(told["rest"], (n,)),
        columns=columns,
    )


def _listed(values: Any) -> Any:
    """Return an array as lists, with null for an infinity."""
    if values is None:
        return None
    if isinstance(values, np.ndarray | list | tuple):
        return [_listed(value) for value in values]
    return values if isinstance(values, bool) else float(values) if np.isfinite(values) else None


def read_array(
    values: Any, shape: tuple[int, ...], endless: float | None = None, least: float = -np.inf
) -> Floats:
    """Return lists of numbers as an array, or raise what ``read_shield`` does.

    Args:
        values: The lists.
        shape: What the array must have.
        endless: What null stands for, if that is allowed.
        least: Least value.
    """
    if endless is not None:
        values = [endless if value is None else value for value in values]
    found = np.array(values, np.float64)
    if found.shape != shape:
        raise ValueError(f"a part of the shield has the shape {found.shape}, and not {shape}")
    if not (np.isfinite(found) | (found == endless)).all() or not (found >= least).all():
        raise ValueError("a part of the shield is not finite, or negative")
    return found


def _number(value: Any) -> float:
    return float(read_array([value], (1,), least=0.0)[0])

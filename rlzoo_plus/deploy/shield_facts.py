"""What a robot's folder says of the shield of its environment, for whoever commands the joints."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlzoo_plus.deploy.drive_commands import NotAffineError, affine_commands
from rlzoo_plus.deploy.wrapper_layers import WrapperChain
from robots.env import BaseRobotEnv
from robots.shield import Shield
from robots.shield_numbers import shield_numbers

_OF_DRIVE = ("shares", "scale", "centre", "lower", "upper", "relative", "fastest")
KEYS = ("shield", "no_shield_because")


def shield_facts(
    env: BaseRobotEnv, chain: WrapperChain, max_action_rate: float | None
) -> dict[str, Any]:
    """Return the entries of deploy.json: the shield as numbers, or why it cannot be written.

    Both are None where the environment has no shield.
    """
    conditions = env.conditions
    if conditions is None or conditions.shield is None:
        return dict.fromkeys(KEYS)
    try:
        found = _numbers(env, conditions.shield, chain)
    except NotAffineError as error:
        return {"shield": None, "no_shield_because": str(error)}
    found["drive"]["max_action_rate"] = max_action_rate
    return {"shield": found, "no_shield_because": None}


def _numbers(env: BaseRobotEnv, shield: Shield, chain: WrapperChain) -> dict[str, Any]:
    if any(layer.changes_actions for layer in chain.layers):
        raise NotAffineError("a wrapper changes the actions before the shield sees them")
    affine = affine_commands(env.robot.drive, with_state=True)
    count = len(shield.joints.force)
    if affine.relative[count:].any() or np.isfinite(affine.fastest[count:]).any():
        raise NotAffineError("commands depend on the state of joints that it does not watch")
    choices = env.discrete_actions
    return {
        "joints": [joint.name for joint in affine.joints[:count]],
        "unit": ["m" if joint.slides else "rad" for joint in affine.joints[:count]],
        "promises": shield.promises,
        "drive": {
            "names": [joint.name for joint in affine.joints],
            "kinds": affine.kinds,
            **{name: getattr(affine, name).tolist() for name in _OF_DRIVE},
            "choices": None if choices is None else np.asarray(choices).tolist(),
        },
        "limits": shield_numbers(shield, env.simulation.step_s * chain.skip),
    }

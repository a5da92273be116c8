"""Shielded robots, and served policies that have what `deploy` writes of their shield."""

import json
from contextlib import closing

import gymnasium
from support.serving import write_policy

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.deploy.shield_facts import shield_facts
from rlzoo_plus.deploy.wrapper_layers import WrapperChain

HUSKY = "robots/HuskyDrive-v1"
LIMITS = {"max_velocity": 1.0, "max_action_rate": 0.5, "on_violation": "shield"}


def made(env_id, more=None, **kwargs):
    """Return a shielded environment on MuJoCo."""
    safety = {**LIMITS, **(more or {})}
    return gymnasium.make(env_id, engine="mujoco", safety=safety, **kwargs).unwrapped


def facts(env, rate=None):
    """Return what `deploy` writes of a shield, as it is read."""
    return json.loads(json.dumps(finite(shield_facts(env, WrapperChain(), rate)), allow_nan=False))


def shield_of_a_car():
    """Return what `deploy` writes of a car with four wheels, that two entries drive."""
    with closing(made(HUSKY)) as env:
        return facts(env)["shield"]


def changed_policy(folder, **entries):
    """Write the tiny policy, with other entries in its description."""
    write_policy(folder)
    file = folder / "deploy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    return folder


def state(shield, velocity=0.0):
    """Return the state of the joints of a shield as clients send it."""
    return {joint: [0.0, velocity] for joint in shield["joints"]}

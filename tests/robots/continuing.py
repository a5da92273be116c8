"""Environments to play with, and what it takes to compare how they go on."""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from robots.cartpole import SimpleRobotEnv
from robots.env import BaseRobotEnv
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import SensorSpec
from robots.task import Task, columns, observation_of
from robots.world import ObjectSpec, WorldSpec

KUKA = "kuka_iiwa/model.urdf"
EPISODE_S = 0.8
# What may differ from episode to episode, of any robot, and of one on the ground among objects.
EVERYTHING = {
    "mass": {"uniform": [0.7, 1.4], "each": True},
    "inertia": {"log_uniform": [0.5, 2.0]},
    "friction": {"normal": 0.1},
    "joint_damping": {"uniform": [0.0, 0.001]},
    "gravity": {"normal": [1.0, 0.05]},
    "motor_strength": {"uniform": [0.5, 1.0]},
    "latency": {"choice": [0, 1, 3]},
    "observation_delay": {"choice": [0, 2, 5]},
    "initial_position": {"uniform": [-0.05, 0.05]},
    "initial_velocity": {"normal": 0.02},
    "observation_bias": {"normal": 0.01},
    "observation_noise": {"normal": 0.02},
    "push": {"every_s": 0.2, "velocity": 0.3},
    "curriculum": {"episodes": 5},
}
SURROUNDINGS = {
    "payload": {"uniform": [0.0, 3.0]},
    "com_offset": {"uniform": [-0.02, 0.02]},
    "ground_friction": {"uniform": [0.5, 1.0]},
    "object_mass": {"uniform": [0.5, 2.0]},
    "object_friction": 0.5,
}


class Wander(Task):
    """Joints that start anywhere and are rewarded for nothing in particular."""

    reward_weights: ClassVar[Mapping[str, float]] = {"speed": 1.0}

    def __init__(self, n_joints):
        super().__init__()
        self.n_joints = n_joints
        self.observation_space = spaces.Box(-np.inf, np.inf, (2 * n_joints,), np.float32)

    def sample_initial_state(self, rng):
        return InitialState(*rng.uniform(-0.3, 0.3, (2, self.n_joints)))

    def observation(self, state):
        return observation_of(*columns(state.joint_position), *columns(state.joint_velocity))

    def reward_terms(self, state, action):
        return {"speed": state.joint_velocity.sum(axis=-1)}

    def terminations(self, state):
        return {"too_fast": abs(state.joint_velocity).max(axis=-1) > 20.0}


class BothWander(Wander):
    """A task for an arm and a car."""

    def observation(self, state):
        (car,) = state.partners
        parts = [state.joint_position, car.base_position, car.joint_velocity]
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def sample_initial_state(self, rng):
        place = (1.5, rng.uniform(-0.5, 0.5), 0.15)
        car = InitialState(np.zeros(4), np.zeros(4), base_position=place)
        return super().sample_initial_state(rng)._replace(partners=(car,))


def cartpole(discrete=False, **options):
    """Return a cart-pole whose episodes end both by a fall and by time."""
    return SimpleRobotEnv(discrete=discrete, episode_s=EPISODE_S, **options)


def arm(mode=ActionMode.TORQUE, joints=".*", **options):
    """Return a Kuka arm, of whose seven joints those not matched are passive."""
    needed: dict[ActionMode, dict[str, Any]] = {
        ActionMode.PD: {"position_gain": 20.0, "velocity_gain": 2.0},
        ActionMode.END_EFFECTOR: {"end_effector": "lbr_iiwa_link_7"},
    }
    spec = {"action_scale": 2.0, "action_mode": mode, "joints": joints, **needed.get(mode, {})}
    task = Wander(7 if joints == ".*" else 1)
    return BaseRobotEnv(RobotSpec(KUKA, **spec), task, episode_s=EPISODE_S, **options)


def husky(**spec):
    """Return the specification of a Husky, free to move."""
    usual = {
        "action_scale": 8.0,
        "action_mode": ActionMode.VELOCITY,
        "joints": ".*wheel",
        "fixed_base": False,
        "max_force": 60.0,
        "sensors": SensorSpec(base=True),
    }
    return RobotSpec("husky/husky.urdf", **{**usual, **spec})


def tumbler(**options):
    """Return a robot on wheels that tumbles about a floor with a ball and a box."""
    robot = RobotSpec(
        "r2d2.urdf",
        action_scale=20.0,
        action_mode=ActionMode.VELOCITY,
        actuated=".*wheel.*",
        fixed_base=False,
        base_position=(0.0, 0.0, 0.6),
        inertia_from_file=True,
        sensors=SensorSpec(base=True, links="head", contacts=".*wheel.*", efforts=True),
    )
    objects = (
        ObjectSpec("sphere", (0.1, 0.0, 0.0), 0.5, (0.0, 0.6, 0.1)),
        ObjectSpec("box", (0.1, 0.1, 0.1), 0.2, (0.0, 0.6, 0.4)),
    )
    world = WorldSpec(ground_friction=0.8, objects=objects)
    return BaseRobotEnv(robot, Wander(8), world, episode_s=EPISODE_S, **options)


def arm_and_car():
    """Return an arm and a Husky on a ground, with a ball between them."""
    arm = RobotSpec(KUKA, action_scale=0.2, action_mode=ActionMode.DELTA_POSITION)
    ball = ObjectSpec("sphere", (0.1, 0.0, 0.0), position=(0.9, 0.0, 0.1))
    world = WorldSpec(ground_friction=0.8, objects=(ball,), partners=(husky(),))
    return BaseRobotEnv(arm, BothWander(7), world, episode_s=EPISODE_S)


def between_posts(env_id, **options):
    """Return a driving robot with five posts in its way."""
    usual = {"obstacles": 5, "min_goal_m": 3.0, "max_goal_m": 5.0}
    return gymnasium.make(env_id, **{**usual, **options}).unwrapped


def on_rough_ground(**options):
    """Return a quadruped on uneven ground."""
    usual = {"terrain": {"roughness_m": 0.06}}
    return gymnasium.make("robots/A1Walk-v1", **{**usual, **options}).unwrapped


def randomized_cartpole():
    """Return a cart-pole of which all differs from episode to episode."""
    return cartpole(randomization=EVERYTHING)


def randomized_tumbler():
    """Return a tumbling robot of which all differs, and of its surroundings."""
    return tumbler(randomization={**EVERYTHING, **SURROUNDINGS})


def shielded(**limits):
    """Return the options of an environment that a shield keeps within limits."""
    return {"safety": {**limits, "on_violation": "shield"}}


_LATE = {"latency": 2, "max_action_rate": 0.4, "motor_strength": 0.7}
_LIMITS = {"joint_margin": 1.7, "max_velocity": 3.0, "max_torque": 20.0, "max_action_rate": 1.9}
_ANSWERS = {
    ActionMode.TORQUE: "penalty",
    ActionMode.POSITION: "count",
    ActionMode.PD: "terminate",
}
_SHIELDED = {"max_velocity": 0.6, "max_torque": 90.0, "max_action_rate": 0.5, "penalty": 0.1}
# Environments with something that decides how they go on.
CASES = {
    "tumbler": tumbler,
    "random cart-pole": randomized_cartpole,
    "random tumbler": randomized_tumbler,
    "team": arm_and_car,
    "posts, husky": partial(between_posts, "robots/HuskyDrive-v1", episode_s=1.0),
    "posts, racecar": partial(between_posts, "robots/RacecarDrive-v1", episode_s=1.0),
    "rough ground": on_rough_ground,
    **{f"late, {mode}": partial(arm, mode, **_LATE) for mode in ActionMode},
    **{
        f"limits, {mode}": partial(arm, mode, safety={**_LIMITS, "on_violation": answer})
        for mode, answer in _ANSWERS.items()
    },
    **{
        f"shield, {mode}": partial(arm, mode, **shielded(joint_margin=0.1, **_SHIELDED))
        for mode in ActionMode
    },
}


def episode(env, controller, seed=0):
    """Return return, length and last info of an episode."""
    observation, _ = env.reset(seed=seed)
    total, steps, done, info = 0.0, 0, False, {}
    while not done:
        action = np.clip(controller(observation), -1, 1)
        observation, reward, terminated, truncated, info = env.step(action)
        total, steps, done = total + reward, steps + 1, terminated or truncated
    return total, steps, info


def actions_for(env, n=400):
    """Return the same random actions every time."""
    rng = np.random.default_rng(0)
    if isinstance(env.action_space, spaces.Discrete):
        return rng.integers(0, 2, n)
    return rng.uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32)


def play(env, actions, visit=lambda info: None):
    """Return the running digest of all that steps and resets returned, after every step."""
    digest, digests = hashlib.sha256(), []
    for action in actions:
        observation, *rest = env.step(action)
        digest.update(observation.tobytes() + repr(rest).encode())
        visit(rest[-1])
        if rest[1] or rest[2]:
            digest.update(env.reset()[0].tobytes())
        digests.append(digest.hexdigest())
    return digests


def to_json(state):
    """Write a state as text, which only plain data can be."""
    return json.dumps(state, default=lambda array: {"array": array.tolist()})


def from_json(text):
    """Read what ``to_json`` wrote."""
    return json.loads(text, object_hook=lambda d: np.array(d["array"]) if "array" in d else d)

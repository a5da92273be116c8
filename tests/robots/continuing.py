"""Environments whose state is saved and loaded, and what it takes to compare how they go on."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from robots.cartpole import SimpleRobotEnv
from robots.env import BaseRobotEnv
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import SensorSpec, State
from robots.task import Task, columns, observation_of
from robots.world import ObjectSpec, WorldSpec

KUKA = "kuka_iiwa/model.urdf"
EPISODE_S = 0.8


class Wander(Task):
    """Joints that start anywhere and are rewarded for nothing in particular."""

    reward_weights: ClassVar[Mapping[str, float]] = {"speed": 1.0}

    def __init__(self, n_joints: int) -> None:
        super().__init__()
        self.n_joints = n_joints
        self.observation_space = spaces.Box(-np.inf, np.inf, (2 * n_joints,), np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        return InitialState(*rng.uniform(-0.3, 0.3, (2, self.n_joints)))

    def observation(self, state: State) -> np.ndarray:
        return observation_of(*columns(state.joint_position), *columns(state.joint_velocity))

    def reward_terms(self, state: State, action: np.ndarray) -> dict[str, Any]:
        return {"speed": state.joint_velocity.sum(axis=-1)}

    def terminations(self, state: State) -> dict[str, Any]:
        return {"too_fast": abs(state.joint_velocity).max(axis=-1) > 20.0}


def cartpole(discrete: bool = False, **kwargs: Any) -> SimpleRobotEnv:
    """Return a cart-pole whose episodes end both by a fall and by time."""
    return SimpleRobotEnv(discrete=discrete, episode_s=EPISODE_S, **kwargs)


def arm(mode: ActionMode = ActionMode.TORQUE, task: Task | None = None, **spec: Any) -> Any:
    """Return a Kuka arm of seven joints."""
    needed: dict[ActionMode, dict[str, Any]] = {
        ActionMode.PD: {"position_gain": 20.0, "velocity_gain": 2.0},
        ActionMode.END_EFFECTOR: {"end_effector": "lbr_iiwa_link_7"},
    }
    options = {**needed.get(mode, {}), **spec}
    robot = RobotSpec(KUKA, action_scale=2.0, action_mode=mode, **options)
    return BaseRobotEnv(robot, task or Wander(7), episode_s=EPISODE_S)


def crawler() -> BaseRobotEnv:
    """Return a robot on wheels that tumbles about a floor with a ball and a box."""
    robot = RobotSpec(
        "r2d2.urdf",
        action_scale=20.0,
        action_mode=ActionMode.VELOCITY,
        actuated=".*wheel.*",
        fixed_base=False,
        base_position=(0.0, 0.0, 0.6),
        sensors=SensorSpec(base=True, links="head", contacts=".*wheel.*", efforts=True),
    )
    objects = (
        ObjectSpec("sphere", (0.1, 0.0, 0.0), 0.5, (0.0, 0.6, 0.1)),
        ObjectSpec("box", (0.1, 0.1, 0.1), 0.2, (0.0, 0.6, 0.4)),
    )
    world = WorldSpec(ground_friction=0.8, objects=objects)
    return BaseRobotEnv(robot, Wander(8), world, episode_s=EPISODE_S)


def actions_for(env: BaseRobotEnv, n: int = 400) -> np.ndarray:
    """Return the same random actions every time."""
    rng = np.random.default_rng(0)
    if isinstance(env.action_space, spaces.Discrete):
        return rng.integers(0, 2, n)
    return rng.uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32)


def play(env: BaseRobotEnv, actions: np.ndarray, visit: Callable = lambda info: None) -> list[str]:
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


def to_json(state: dict[str, Any]) -> str:
    """Write a state as text, which only plain data can be."""
    return json.dumps(state, default=lambda array: {"array": array.tolist()})


def from_json(text: str) -> dict[str, Any]:
    """Read what ``to_json`` wrote."""
    return json.loads(text, object_hook=lambda d: np.array(d["array"]) if "array" in d else d)

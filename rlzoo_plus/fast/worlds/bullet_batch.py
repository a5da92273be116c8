"""What is common to batches of environments of pybullet-envs-gymnasium that the plugin steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pybullet
from gymnasium.wrappers import TimeLimit

from rlzoo_plus.envs.episodes import RecordedEpisodes, layers_of
from robots import native
from robots.plugin import get_plugin
from robots.threads import Threads
from robots.vec_env import Transition


class BulletBatch:
    """Steps n environments of one kind; the counterpart of `RobotVecEnv` for `BatchedRobots`.

    The originals reset the worlds, and know of the running episode after `give_back`.
    """

    enough: ClassVar[int] = 1
    """How many are stepped faster than the originals one by one."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n environments, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        self._envs: list[Any] = [env.unwrapped for env in envs]
        self._robots: list[Any] = [env.robot for env in self._envs]
        self._limits = [layer_of(env, TimeLimit) for env in envs]
        self._records = [layer_of(env, RecordedEpisodes) for env in envs]
        self._max_steps = min(limit._max_episode_steps for limit in self._limits)
        self._threads = Threads(len(envs), hash(type(self._envs[0])))
        self._programs: native.Programs | None = None
        self._steps = np.zeros(len(envs), np.int64)
        self._potential = np.zeros(len(envs))

    def take_over(self, index: int) -> None:
        """Continue from the state of one environment, which was reset or stepped by itself."""
        self._steps[index] = self._limits[index]._elapsed_steps
        self._potential[index] = self._envs[index].potential

    def give_back(self, index: int) -> None:
        """Write the state of a world into its environment; the opposite of `take_over`."""
        self._limits[index]._elapsed_steps = int(self._steps[index])

    def physics_alone(self) -> native.Programs:
        """Return programs that command and step the worlds, and read nothing; for benchmarks."""
        clients = [env.physicsClientId for env in self._envs]
        return native.Programs(get_plugin(), clients, self._commands(), 0)

    def _commands(self) -> list[native.Program]:
        raise NotImplementedError

    def _moved(
        self, actions: np.ndarray, observation: np.ndarray, rewards: np.ndarray, ends: np.ndarray
    ) -> Transition:
        """Record a step of all worlds, and return what it came to."""
        self._steps += 1
        # A copy, since what was given may be changed later.
        for record, action, seen in zip(self._records, actions.copy(), observation, strict=True):
            if record is not None:
                record.note_step(action, seen)
        truncated = ~ends & (self._steps >= self._max_steps)
        return Transition(observation, rewards, ends, truncated, [{} for _ in self._envs])


def limited(actions: np.ndarray) -> np.ndarray:
    """Return actions between -1 and 1.

    Raises:
        AssertionError: One is not a number, as the originals do.
    """
    # Their sum is finite, unless one is not or it is beyond all numbers.
    assert math.isfinite(np.add.reduce(actions, axis=None)) or np.isfinite(actions).all()
    kept: np.ndarray = np.minimum(np.maximum(actions, -1), +1)
    return kept


def layer_of(env: gym.Env, kind: type) -> Any:
    """Return the wrapper of a kind around an environment, None if there is none."""
    return next((layer for layer in layers_of(env) if isinstance(layer, kind)), None)


def body_of(part: Any) -> int:
    """Return the number of the body that a part or a joint belongs to."""
    body: int = part.bodies[part.bodyIndex]
    return body


def torques_and_step(env: Any, joints: Sequence[Any]) -> native.Program:
    """Return what drives joints of one body, by columns in this order, and steps the world."""
    rest = (0.0, 0.0, 0.0, np.inf, -np.inf, np.inf)
    motors = [(column, *pair, *rest) for column, pair in enumerate(indices_of(env, joints))]
    numbers = [number for motor in motors for number in motor]
    body, count, mode = body_of(joints[0]), len(motors), pybullet.TORQUE_CONTROL
    commands = native.part(native.MOTORS, body, mode, count, count, *numbers)
    return [*commands, *native.part(native.STEP, 1)]


def indices_of(env: Any, joints: Iterable[Any]) -> list[tuple[int, int]]:
    """Return Bullet's indices of the position and the velocity of each joint."""
    client = env.physicsClientId
    return [
        pybullet.getJointInfo(body_of(joint), joint.jointIndex, physicsClientId=client)[3:5]
        for joint in joints
    ]

"""What is common to batches of environments of pybullet-envs-gymnasium that the plugin steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pybullet

from rlzoo_plus.fast.worlds.world_batch import WorldBatch
from robots.engines.bullet import native
from robots.engines.bullet.plugin import get_plugin


class BulletBatch(WorldBatch):
    """Steps n environments of one kind in the plugin of our robots."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n environments, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        super().__init__(envs)
        self._robots: list[Any] = [env.robot for env in self._envs]
        self._programs: native.Programs | None = None
        self._potential = np.zeros(len(envs))

    def take_over(self, index: int) -> None:
        """Continue from the state of one environment, which was reset or stepped by itself."""
        super().take_over(index)
        self._potential[index] = self._envs[index].potential

    def physics_alone(self) -> native.Programs:
        """Return programs that command and step the worlds, and read nothing; for benchmarks."""
        clients = [env.physicsClientId for env in self._envs]
        return native.Programs(get_plugin(), clients, self._commands(), 0)

    def _commands(self) -> list[native.Program]:
        raise NotImplementedError


def limited(actions: np.ndarray) -> np.ndarray:
    """Return actions between -1 and 1.

    Raises:
        AssertionError: One is not a number, as the originals do.
    """
    # Their sum is finite, unless one is not or it is beyond all numbers.
    assert math.isfinite(np.add.reduce(actions, axis=None)) or np.isfinite(actions).all()
    kept: np.ndarray = np.minimum(np.maximum(actions, -1), +1)
    return kept


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

"""Many worlds that follow short parts of a log, each with parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.parameters import (
    Parameter,
    drawn_of,
    parameters_of,
    randomization_of,
)
from robots.conditions import Actuation
from robots.engines import stepper
from robots.env import BaseRobotEnv
from robots.robot import InitialState

Floats = NDArray[np.float64]
_WORLDS = 32
_FAR_M = 100.0
_POSE = 7


class Worlds:
    """Equal worlds of one robot.

    Attributes:
        env: The first of them.
        parameters: What can be told about the robot.
        latency: Control steps of latency that the environment has anyway.
        n_joints: Joints that are measured.
        n_errors: Numbers of an error between two states: those of a state, less one for the
            quaternion of a free base.
    """

    def __init__(self, spec: EnvConfig, count: int = _WORLDS) -> None:
        """Make them; the randomization and latency of the specification are left out.

        Raises:
            ConfigError: It is no robot of `robots`, or one whose worlds a log cannot describe.
        """
        kwargs = {k: v for k, v in spec.kwargs.items() if k not in _CONDITIONS}
        self.latency = int(spec.kwargs.get("latency") or 0)
        self._max_rate = spec.kwargs.get("max_action_rate")
        first = _robot(spec.model_copy(update={"kwargs": kwargs}))
        try:
            self._refuse(first, spec.id)
            kwargs["randomization"] = randomization_of(first)
        finally:
            first.close()
        changed = spec.model_copy(update={"kwargs": kwargs})
        self._envs = [_robot(changed) for _ in range(count)]
        self.env = self._envs[0]
        # Before anything is commanded: a motor would hold the joints.
        self.parameters = parameters_of(self.env)
        self._worlds = [env.world for env in self._envs]
        self._step = stepper(self.env.simulation.engine)(self._worlds)
        self.n_joints = len(self.env.robot.joints)
        self.is_free = self.env.robot.free_base
        self.n_errors = 2 * self.n_joints + (12 if self.is_free else 0)
        readers = [
            (
                env.simulation.pose_reader(env.robot.body),
                env.simulation.velocity_reader(env.robot.body),
            )
            for env in self._envs
        ]
        self._bases = readers if self.is_free else []
        self._applied: list[bytes] = [b""] * count

    def __enter__(self) -> Worlds:
        return self

    def __exit__(self, *about: object) -> None:
        for env in self._envs:
            env.close()

    def arrivals(self, commands: Floats, latency: int, are_targets: bool) -> Floats:
        """Return what reaches the motors in each row, shape as the commands.

        The first rows, up to the latency, are zeros; what was under way there is not known.
        """
        if self._max_rate is not None and not are_targets:
            actuation = Actuation(commands.shape[1], max_rate=self._max_rate)
            commands = np.array([actuation.apply(row) for row in commands])
        arrived = np.zeros_like(commands)
        arrived[latency:] = commands[: max(len(commands) - latency, 0)]
        return arrived

    def follow(
        self,
        parameters: Sequence[Parameter],
        values: Floats,
        starts: Floats,
        commands: Floats,
        are_targets: bool,
    ) -> Floats:
        """Return the states after each command, of n worlds.

        Args:
            parameters: What is set.
            values: Their ``u``, shape (n, n_parameters).
            starts: States to start in, shape (n, n_numbers).
            commands: What reaches the motors, shape (n, n_steps, n_commands).
            are_targets: Whether that are targets of joints.

        Returns:
            Shape (n, n_steps, n_numbers).

        Raises:
            ConfigError: A state is no number.
        """
        count, n_steps = commands.shape[:2]
        found = np.empty((count, n_steps, starts.shape[1]))
        for first in range(0, count, len(self._envs)):
            # The last ones are repeated where there are too few.
            rows = np.minimum(np.arange(first, first + len(self._envs)), count - 1)
            readings = [
                self._start(number, parameters, values[row], starts[row])
                for number, row in enumerate(rows)
            ]
            state = self.env.world.sensors.state(np.array(readings))
            for step in range(n_steps):
                targets = commands[rows, step]
                if not are_targets:
                    targets = self.env.robot.drive.targets(targets, state)
                readings = self._step(targets)
                state = self.env.world.sensors.state(readings)
                found[rows, step] = self._states(readings)
        if not np.isfinite(found).all():
            row = int(np.argwhere(~np.isfinite(found))[0, 0])
            raise ConfigError(
                f"the simulation does not stay finite from the state {starts[row].round(3)} of the "
                "log. Check its units: m, rad, m/s, rad/s, a quaternion x, y, z, w."
            )
        return found

    def _start(
        self, number: int, parameters: Sequence[Parameter], u: Floats, start: Floats
    ) -> list[float]:
        env = self._envs[number]
        assert env.randomizer is not None
        if u.tobytes() != self._applied[number]:
            env.randomizer.apply(drawn_of(parameters, u, env))
            self._applied[number] = u.tobytes()
        n = self.n_joints
        initial = InitialState(start[:n], start[n : 2 * n])
        if self.is_free:
            base = np.split(start[2 * n :], (3, _POSE, 10))
            initial = initial._replace(
                base_position=base[0],
                base_orientation=base[1],
                base_velocity=base[2],
                base_angular_velocity=base[3],
            )
        if env.world.objects:
            # A log does not say where they were.
            away = np.zeros((len(env.world.objects), 3))
            away[:, 0], away[:, 2] = _FAR_M * np.arange(1, len(away) + 1), 1.0
            initial = initial._replace(object_position=away)
        return env.world.start(initial)

    def _states(self, readings: Floats) -> Floats:
        joints = readings[:, : 2 * self.n_joints]
        if not self.is_free:
            return joints
        rows = [[*chain(*pose(), *motion())] for pose, motion in self._bases]
        return np.hstack([joints, rows])

    @staticmethod
    def _refuse(env: BaseRobotEnv, env_id: str) -> None:
        world = env.world
        for what, is_there in (
            ("uneven ground", world.terrain is not None),
            ("further robots", len(world.robots) > 1),
            ("obstacles", bool(world.obstacles)),
        ):
            if is_there:
                raise ConfigError(
                    f"env.id={env_id} has {what}, and a log does not say where. Leave it out, or "
                    "log the robot in an environment without."
                )

    def moved(self, states: Floats, changes: Floats) -> Floats:
        """Return states with errors added, shapes (..., n_numbers) and (..., n_errors)."""
        n = 2 * self.n_joints
        if not self.is_free:
            return states + changes
        turned = _product(_quaternion(changes[..., n + 3 : n + 6]), states[..., n + 3 : n + _POSE])
        return np.concatenate(
            [
                states[..., : n + 3] + changes[..., : n + 3],
                turned,
                states[..., n + _POSE :] + changes[..., n + 6 :],
            ],
            axis=-1,
        )

    def errors(self, states: Floats, measured: Floats) -> Floats:
        """Return what must be added to the measured states to get others, as ``moved`` does."""
        n = 2 * self.n_joints
        plain = states - measured
        if not self.is_free:
            return plain
        inverse = measured[..., n + 3 : n + _POSE] * np.array([-1.0, -1.0, -1.0, 1.0])
        turn = _product(states[..., n + 3 : n + _POSE], inverse)
        turn = np.where(turn[..., 3:] < 0, -turn, turn)
        parts = [plain[..., : n + 3], 2.0 * turn[..., :3], plain[..., n + _POSE :]]
        return np.concatenate(parts, axis=-1)


_CONDITIONS = ("randomization", "latency", "max_action_rate", "safety")


def _robot(spec: EnvConfig) -> BaseRobotEnv:
    env = make_env(spec).unwrapped
    if not isinstance(env, BaseRobotEnv):
        raise ConfigError(
            f"env.id={spec.id} is no robot of this package, whose physics could be changed. Name "
            "one of `rlzoo-plus train --help env`, or your own built on `robots`."
        )
    return env


def _quaternion(turn: Floats) -> Floats:
    """Return the quaternions of small turns [rad], shape (..., 4)."""
    whole = np.concatenate([0.5 * turn, np.ones((*turn.shape[:-1], 1))], axis=-1)
    unit: Floats = whole / np.linalg.norm(whole, axis=-1, keepdims=True)
    return unit


def _product(a: Floats, b: Floats) -> Floats:
    """Return the product of quaternions (x, y, z, w), shape (..., 4)."""
    v, w, x, y = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    vector = w * x + y * v + np.cross(v, x)
    return np.concatenate([vector, w * y - (v * x).sum(-1, keepdims=True)], axis=-1)

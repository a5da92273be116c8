"""The walkers of pybullet-envs-gymnasium, many at once: the numbers of the originals, bit for bit.

The plugin of our robots steps and reads all worlds in one call, and computes what the originals
compute of each reading. Functions that NumPy rounds in its own way (angles, products of matrices,
means of the actions' precision) are NumPy's, of all worlds at once. Those who run to flags decide
themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from pybullet_envs_gymnasium import robot_locomotors as robots_of

from rlzoo_plus.fast.worlds.bullet_batch import (
    BulletBatch,
    body_of,
    indices_of,
    limited,
    torques_and_step,
)
from robots.engines.bullet import native
from robots.engines.bullet.plugin import get_plugin
from robots.transition import Transition

# Where the place of a part is fixed, or that of the base, in place of the number of a link.
_OF_BASE, _FIXED = -1, -2


# What keeps walkers alive, by number in worlds.c, with the height and the bonus of their
# `alive_bonus`: above it and upright, on no more than the feet, above it.
_UPRIGHT, _ON_FEET, _ABOVE = range(3)
_ALIVE = {
    robots_of.Hopper: (_UPRIGHT, 0.8, 1.0),
    robots_of.Walker2D: (_UPRIGHT, 0.8, 1.0),
    robots_of.HalfCheetah: (_ON_FEET, 0.0, 1.0),
    robots_of.Ant: (_ABOVE, 0.26, 1.0),
    robots_of.Humanoid: (_ABOVE, 0.78, 2.0),
    robots_of.HumanoidFlagrun: (_ABOVE, 0.78, 2.0),
}


_ARRAYS: tuple[str, ...] = (
    "rows",
    "start_z",
    "costs",
    "means",
    "sines",
    "cosines",
    "ahead",
    "distance",
)
_ARRAYS += ("potential", "terms", "feet", "observation", "ended")


class _Layout(ctypes.Structure):
    """Sizes, constants and addresses of arrays: struct Walkers in worlds.c."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("n", "n_joints", "n_feet", "width", "kind")),
        *((name, ctypes.c_double) for name in ("dt", "height", "bonus")),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    )


class Walkers(BulletBatch):
    """Steps n walkers of one kind."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n walkers, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        super().__init__(envs)
        n = len(envs)
        self._settings: list[Any] = []
        self._totals, self._start_z = np.zeros(n), np.zeros(n)
        self._feet = np.zeros((n, len(type(self._robots[0]).foot_list)), np.float32)

    def take_over(self, index: int) -> None:
        """Continue from the state of one walker, which was reset or stepped by itself."""
        super().take_over(index)
        env, robot = self._envs[index], self._robots[index]
        self._totals[index] = env.reward
        self._start_z[index] = robot.initial_z
        self._feet[index] = robot.feet_contact
        # The walker itself looks at it.
        robot.feet_contact = self._feet[index]

    def give_back(self, index: int) -> None:
        """Write the state of a world into its walker; the opposite of `take_over`."""
        super().give_back(index)
        env = self._envs[index]
        # That of those who run to flags would count a step, and might move the flag.
        robots_of.WalkerBase.calc_state(env.robot)  # type: ignore[no-untyped-call]
        env.potential, env.reward = float(self._potential[index]), float(self._totals[index])
        env.rewards = self._terms[index].tolist()
        env._alive = env.rewards[0]

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one walker."""
        return self._envs[index].robot.body_xyz

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds, shape (n, n_joints); none is reset."""
        self.inputs(actions)
        self._threads.timed(self._run)
        # Contiguous, as NumPy's functions find a single number.
        x, y, z, up, along, yaw = self._column.T.copy()
        angles, sines, cosines, turned = self._angles, self._sines, self._cosines, self._turned
        np.subtract(np.arctan2(up, along), yaw, out=angles[0])
        np.negative(yaw, out=angles[1])
        np.sin(angles, out=sines)
        np.cos(angles, out=cosines)
        turned[:, 0, 0] = turned[:, 1, 1] = cosines[1]
        turned[:, 1, 0] = sines[1]
        np.negative(sines[1], out=turned[:, 0, 1])
        np.matmul(turned, self._speed, out=self._ahead)
        np.matmul(self._apart[:, None], self._apart[:, :, None], out=self._square)
        np.sqrt(self._square[:, 0, 0], out=self._distance)
        again = self._chase(x, y, z) if self._are_chasing else {}
        n_joints = actions.shape[1]
        works = np.abs(actions * self._speeds.astype(np.float32))
        self._means[0] = np.add.reduce(works, 1) / n_joints
        self._means[1] = np.add.reduce(actions * actions, 1) / n_joints
        self._finish()
        observation = self._observation.copy()
        for index, seen in again.items():
            observation[index] = seen
        # By Python, whose newer versions carry the rounding errors.
        rewards = np.array([sum(terms) for terms in self._terms.tolist()])
        self._totals += rewards
        return self._moved(actions, observation, rewards, self._ended.copy())

    def _chase(self, *places: np.ndarray) -> dict[int, np.ndarray]:
        """Let walkers that run to flags do what their `calc_state` does, which draws new flags.

        Returns:
            Of those that have a new flag, what they see.
        """
        again: dict[int, np.ndarray] = {}
        rows = zip(self._robots, np.stack(places, axis=1), self._distance.copy(), strict=True)
        for index, (robot, place, distance) in enumerate(rows):
            robot.body_xyz, robot.walk_target_dist = tuple(place), distance
            robot.flag_timeout -= 1
            if robot.walk_target_dist < 1 or robot.flag_timeout <= 0:
                robot.flag_reposition()
                again[index] = robots_of.WalkerBase.calc_state(robot)  # type: ignore[no-untyped-call]
                robot.potential = robot.calc_potential()
                self._distance[index] = robot.walk_target_dist
        return again

    def inputs(self, actions: np.ndarray) -> np.ndarray:
        """Return what the programs are given: torques, a factor on them, target and start.

        Raises:
            AssertionError: An action is not a number, as the originals do.
        """
        clipped = limited(actions)
        if self._programs is None:
            self._load()
        settings = [
            (
                *(env.electricity_cost, env.stall_torque_cost, env.joints_at_limit_cost),
                *(robot.power, robot.walk_target_x, robot.walk_target_y),
            )
            for env, robot in zip(self._envs, self._robots, strict=True)
        ]
        n_joints = actions.shape[1]
        if settings != self._settings:
            self._settings = settings
            self._power = np.stack([_power_of(one) for one in self._robots])
            columns = np.array(settings, np.float64)
            self._costs[:] = columns[:, :3].T
            self._inputs[:, n_joints + 1 : n_joints + 3] = columns[:, 4:]
        inputs = self._inputs
        if self._is_humanoid:
            # Its factor is a number of Python, which takes the precision of the action.
            inputs[:, :n_joints] = clipped * self._power.astype(clipped.dtype)
        else:
            np.multiply(clipped, self._power, out=inputs[:, :n_joints])
        inputs[:, n_joints + 3] = self._start_z
        return inputs

    def _commands(self) -> list[native.Program]:
        return [torques_and_step(env, _motors_of(env.robot)) for env in self._envs]

    def _load(self) -> None:
        """Write the programs: the robots are loaded by their first reset."""
        first, robot = self._envs[0], self._envs[0].robot
        joints, parts = robot.ordered_joints, list(robot.parts.values())
        body = body_of(robot.robot_body)
        own = [number for number, one in enumerate(parts) if body_of(one) == body]
        linked = {
            number: parts[number].bodyPartIndex
            for number in own
            if parts[number].bodyPartIndex >= 0
        }
        links = list(linked.values())
        torso = robot.robot_body.bodyPartIndex
        n_joints = len(joints)
        self._are_chasing = isinstance(robot, robots_of.HumanoidFlagrun)
        self._is_humanoid = isinstance(robot, robots_of.Humanoid)
        lower = [joint.lowerLimit for joint in joints]
        ranges = [joint.upperLimit - joint.lowerLimit for joint in joints]
        head = native.part(native.SKIP, 18 + 2 * n_joints)
        clients = [env.physicsClientId for env in self._envs]
        programs = []
        for env, commands in zip(self._envs, self._commands(), strict=True):
            places: list[float] = []
            for number, one in enumerate(env.robot.parts.values()):
                if number in linked:
                    places += [links.index(linked[number]), 0.0, 0.0]
                elif number in own:
                    places += [_OF_BASE, 0.0, 0.0]
                else:
                    places += [_FIXED, *one.current_position()[:2]]
            layout = n_joints + 1, n_joints, len(links), -1 if torso < 0 else links.index(torso)
            numbers = (*layout, len(places) // 3, *lower, *ranges, *places)
            tail = native.part(native.WALKER, *numbers)
            programs.append([*commands, *head, *_reads(env, links), *tail])
        width = 18 + 4 * n_joints + 13 + 13 * len(links) + self._feet.shape[1]
        self._programs = native.Programs(get_plugin(), clients, programs, width)
        self._allocate(first, n_joints, width)

    def _allocate(self, first: Any, n_joints: int, width: int) -> None:
        """Make the arrays that the plugin and NumPy write at each step, and views of them."""
        n, n_feet = self._feet.shape
        self._inputs, self._rows = np.ones((n, n_joints + 4)), np.zeros((n, width))
        self._costs, self._means = np.zeros((3, n)), np.zeros((2, n))
        self._angles, self._sines, self._cosines = np.zeros((3, 2, n))
        self._ahead, self._square = np.zeros((n, 3, 1)), np.zeros((n, 1, 1))
        self._distance, self._terms = np.zeros(n), np.zeros((n, 5))
        self._observation = np.zeros((n, 8 + 2 * n_joints + n_feet), np.float32)
        self._ended = np.zeros(n, np.bool_)
        self._turned = np.zeros((n, 3, 3))
        self._turned[:, 2, 2] = 1
        more = self._rows[:, 8 + 2 * n_joints :]
        self._column, self._apart, self._speed = more[:, :6], more[:, 3:5], more[:, 6:9, None]
        self._speeds = self._rows[:, 9 : 8 + 2 * n_joints : 2]
        kind, height, bonus = _ALIVE[type(first.robot)]
        sizes = n, n_joints, n_feet, width, kind, first.scene.dt, height, bonus
        arrays = (getattr(self, f"_{name}") for name in _ARRAYS)
        self._layout = _Layout(*sizes, *(array.ctypes.data for array in arrays))
        self._finish = partial(get_plugin().functions.walkers_finish, ctypes.byref(self._layout))
        assert self._programs is not None
        self._run = self._programs.bound(self._inputs, self._rows)


def _reads(env: Any, links: list[int]) -> native.Program:
    """Return what reads one walker: its joints, its base, these links and its feet."""
    robot, body = env.robot, body_of(env.robot.robot_body)
    ((floor, _),) = env.ground_ids
    q, u = zip(*indices_of(env, robot.ordered_joints), strict=True)
    indices = [joint.jointIndex for joint in robot.ordered_joints]
    feet = [foot.bodyPartIndex for foot in robot.feet]
    return [
        *native.part(native.READ, body, 1, 0, 0, 1, len(q), *q, *u, *indices),
        *native.part(native.LINKS, 1, 0, len(links), *links),
        *native.part(native.CONTACTS, body, floor, len(feet), *feet),
    ]


def _motors_of(robot: Any) -> list[Any]:
    """Return the joints that the entries of an action drive."""
    motors: list[Any] = robot.ordered_joints
    return robot.motors if isinstance(robot, robots_of.Humanoid) else motors


def _power_of(robot: Any) -> np.ndarray:
    """Return the torque of the action 1 for each motor, shape (n_motors,)."""
    if isinstance(robot, robots_of.Humanoid):
        return np.array([power * robot.power for power in robot.motor_power])
    return np.array([robot.power * joint.power_coef for joint in robot.ordered_joints])

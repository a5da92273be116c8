"""The pendulums and arms of pybullet-envs-gymnasium, many at once: the numbers of the originals.

Operations of single numbers that NumPy may round in another way than those of arrays are made for
each world, as the originals do.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

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


class _Outcome(NamedTuple):
    """What a step came to, before the observation is rounded to single precision."""

    state: np.ndarray
    terms: list[list[Any]]
    ended: np.ndarray


class FixedRobots(BulletBatch):
    """Steps n pendulums or arms of one kind."""

    driven: ClassVar[tuple[str, ...]]
    """Joints that an action drives."""
    torque: ClassVar[float]
    """Of the action 1 [Nm or N]."""
    looked_at: ClassVar[tuple[str, ...]] = ()
    """Parts whose places are read."""
    changing: ClassVar[str]
    """Attribute of a robot that is another object after each step and reset."""

    def give_back(self, index: int) -> None:
        """Write the state of a world into its environment; the opposite of `take_over`."""
        super().give_back(index)
        env = self._envs[index]
        env.robot.calc_state()
        env.rewards = list(self._terms[index])
        self._give_back_potential(env, float(self._potential[index]))

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one environment."""
        # Before the first reset there is none.
        return getattr(self._robots[index], self.changing, None)

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds, shape (n, n_actions); none is reset."""
        self.inputs(actions)
        self._threads.timed(self._run)
        state, self._terms, ended = self._look(actions)
        # By Python, whose newer versions carry the rounding errors.
        rewards = np.array([float(sum(terms)) for terms in self._terms])
        return self._moved(actions, state.astype(np.float32), rewards, ended)

    def inputs(self, actions: np.ndarray) -> np.ndarray:
        """Return what the programs are given: torques, and a factor on them.

        Raises:
            AssertionError: An action is not a number, as the originals do.
        """
        clipped = limited(actions)
        if self._programs is None:
            self._load()
        np.multiply(clipped, self.torque, out=self._inputs[:, :-1], dtype=np.float64)
        return self._inputs

    def _give_back_potential(self, env: Any, potential: float) -> None:
        env.potential = potential

    def _look(self, actions: np.ndarray) -> _Outcome:
        """Return what the worlds came to, from the rows that were read."""
        raise NotImplementedError

    def _joint(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the position and the velocity of a joint, each of shape (n,), contiguous."""
        position, velocity = self._joints[name]
        return self._rows[:, position].copy(), self._rows[:, velocity].copy()

    def _part(self, name: str) -> np.ndarray:
        """Return the places of a part, shape (n, 3)."""
        first = self._parts[name]
        return self._rows[:, first : first + 3]

    def _commands(self) -> list[native.Program]:
        return [
            torques_and_step(env, [env.robot.jdict[name] for name in self.driven])
            for env in self._envs
        ]

    def _load(self) -> None:
        """Write the programs: the robots are loaded by their first reset."""
        self._joints: dict[str, tuple[int, int]] = {}
        self._parts: dict[str, int] = {}
        reads = [self._read(env) for env in self._envs]
        programs = [
            [*commands, *read] for commands, (read, _) in zip(self._commands(), reads, strict=True)
        ]
        width, n = reads[0][1], len(self._envs)
        clients = [env.physicsClientId for env in self._envs]
        self._programs = native.Programs(get_plugin(), clients, programs, width)
        self._inputs = np.ones((n, len(self.driven) + 1))
        self._rows = np.zeros((n, width))
        self._run = self._programs.bound(self._inputs, self._rows)
        joints = self._robots[0].ordered_joints
        self._lower = np.array([joint.lowerLimit for joint in joints])
        self._range = np.array([joint.upperLimit - joint.lowerLimit for joint in joints])
        pairs = [self._joints[joint.joint_name] for joint in joints]
        self._positions, self._velocities = (list(columns) for columns in zip(*pairs, strict=True))

    def _read(self, env: Any) -> tuple[native.Program, int]:
        """Return what reads the joints and the parts of one world, and how many numbers it reads.

        Notes in which columns they are.
        """
        robot = env.robot
        parts = {name: robot.parts[name] for name in self.looked_at}
        program: native.Program = []
        column = 0
        for body in sorted({body_of(one) for one in (*robot.ordered_joints, *parts.values())}):
            joints = [joint for joint in robot.ordered_joints if body_of(joint) == body]
            own = {name: part for name, part in parts.items() if body_of(part) == body}
            links = {name: part for name, part in own.items() if part.bodyPartIndex >= 0}
            pairs, n = indices_of(env, joints), len(joints)
            q, u = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            has_base = len(links) < len(own)
            indices = [joint.jointIndex for joint in joints]
            program += native.part(native.READ, body, 1, 0, 0, has_base, n, *q, *u, *indices)
            for number, joint in enumerate(joints, column):
                self._joints[joint.joint_name] = number, number + n
            column += 2 * n
            if has_base:
                self._parts |= dict.fromkeys(own.keys() - links.keys(), column)
                column += 13
            if links:
                numbers = [part.bodyPartIndex for part in links.values()]
                program += native.part(native.LINKS, 1, 0, len(links), *numbers)
                self._parts |= {name: column + 3 * i for i, name in enumerate(links)}
                column += 13 * len(links)
        return program, column


class Pendulums(FixedRobots):
    """Inverted pendulums on a cart, to be balanced or swung up."""

    driven = ("slider",)
    torque = 100.0
    # One alone is stepped at 0.8 of the rate, eight at twice the rate.
    enough = 2
    changing = "theta"

    def _give_back_potential(self, env: Any, potential: float) -> None:
        # It is that of the reset, a number of Python that no step changes.
        del env, potential

    def _look(self, actions: np.ndarray) -> _Outcome:
        (x, speed), (theta, turning) = self._joint("slider"), self._joint("hinge")
        if not np.isfinite(self._rows).all():
            assert np.isfinite(x).all()
            # What the original says of them is left out.
            speed, theta, turning = (
                np.where(np.isfinite(values), values, 0.0) for values in (speed, theta, turning)
            )
        cosines = np.cos(theta)
        state = _beside(x, speed, cosines, np.sin(theta), turning)
        if self._robots[0].swingup:
            return _Outcome(state, [[one] for one in cosines.tolist()], np.zeros(len(x), np.bool_))
        return _Outcome(state, [[1.0] for _ in x], np.abs(theta) > 0.2)


class DoublePendulums(FixedRobots):
    """Two poles upon each other on a cart, to be balanced."""

    driven = ("slider",)
    torque = 200.0
    enough = 2
    looked_at = ("pole2",)
    changing = "pos_x"
    _give_back_potential = Pendulums._give_back_potential

    def _look(self, actions: np.ndarray) -> _Outcome:
        (x, speed), (theta, turning) = self._joint("slider"), self._joint("hinge")
        gamma, bending = self._joint("hinge2")
        pole = self._part("pole2")
        assert np.isfinite(x).all()
        columns = [x, speed, pole[:, 0], np.cos(theta), np.sin(theta), turning]
        state = _beside(*columns, np.cos(gamma), np.sin(gamma), bending)
        # Powers of one number.
        penalties = [0.01 * a**2 + (b + 0.3 - 2) ** 2 for a, _, b in pole]
        return _Outcome(
            state, [[10.0, float(-one), 0.0] for one in penalties], pole[:, 2] + 0.3 <= 1
        )


class Reachers(FixedRobots):
    """Arms of two links that reach for a target in a plane."""

    driven = ("joint0", "joint1")
    torque = 0.05
    enough = 2
    looked_at = ("fingertip", "target")
    changing = "to_target_vec"

    def _look(self, actions: np.ndarray) -> _Outcome:
        places = 2 * (self._rows[:, self._positions] - self._lower) / self._range - 1.0
        # NumPy's functions find a single number.
        theta, gamma = places[:, 0].copy(), places[:, 1].copy()
        speeds = 0.1 * self._rows[:, self._velocities[:2]]
        apart = self._part("fingertip") - self._part("target")
        target = [self._joint(f"target_{axis}")[0] for axis in "xy"]
        columns = [*target, apart[:, 0], apart[:, 1], np.cos(theta), np.sin(theta)]
        state = _beside(*columns, speeds[:, 0], gamma, speeds[:, 1])
        potential = -100 * _norms(apart)
        progress, self._potential = potential - self._potential, potential
        # A number of Python takes the precision of the action.
        works = np.abs(actions * speeds.astype(actions.dtype))
        stalls = np.abs(actions)
        costs = -0.10 * (works[:, 0] + works[:, 1]) - 0.01 * (stalls[:, 0] + stalls[:, 1])
        stuck = np.where(np.abs(np.abs(gamma) - 1) < 0.01, -0.1, 0.0)
        terms = _beside(progress, costs, stuck).tolist()
        return _Outcome(state, terms, np.zeros(len(state), np.bool_))


class Pushers(FixedRobots):
    """Arms of seven joints that push an object to a target."""

    driven = (
        "shoulder_pan_joint",
        "shoulder_lift_joint",
        "upper_arm_roll_joint",
        "elbow_flex_joint",
        "forearm_roll_joint",
        "wrist_flex_joint",
        "wrist_roll_joint",
    )
    torque = 0.05
    looked_at = ("fingertip", "object", "target")
    changing = "to_target_vec"
    # The originals take one of them twice, and another not at all.
    _working = (*driven[:4], driven[2], *driven[5:])

    def _give_back_potential(self, env: Any, potential: float) -> None:
        env.potential = 0

    def _look(self, actions: np.ndarray) -> _Outcome:
        n = len(actions)
        positions, velocities = self._rows[:, self._positions], self._rows[:, self._velocities]
        relative = 2 * (positions - self._lower) / self._range - 1.0
        for robot in self._robots:
            robot.to_target_vec = robot.target_pos - robot.object_pos
        state = np.concatenate(
            [
                np.stack([positions, velocities], axis=2).reshape(n, -1),
                np.stack([relative, 0.1 * velocities], axis=2).reshape(n, -1),
                [robot.to_target_vec for robot in self._robots],
                *(self._part(name) for name in self.looked_at),
            ],
            axis=1,
        )
        speeds = np.stack([self._joint(name)[1] for name in self._working], axis=1)
        works = np.matmul(np.abs(actions).astype(np.float64)[:, None], np.abs(speeds)[:, :, None])[
            :, 0, 0
        ]
        costs = -0.10 * works - 0.01 * np.add.reduce(actions, 1)
        stuck = np.count_nonzero(np.abs(relative) - 1 < 0.01, axis=1).tolist()
        rows = zip(costs.tolist(), stuck, strict=True)
        terms = [[0.0, cost, float(sum([-0.1] * count))] for cost, count in rows]
        return _Outcome(state, terms, np.zeros(n, np.bool_))


def _beside(*columns: np.ndarray) -> np.ndarray:
    """Return columns of shape (n,) side by side; `numpy.stack` takes twice as long."""
    table = np.empty((len(columns[0]), len(columns)))
    for number, column in enumerate(columns):
        table[:, number] = column
    return table


def _norms(rows: np.ndarray) -> np.ndarray:
    """Return the norm of each row as `numpy.linalg.norm` does of one, shape (n,)."""
    norms: np.ndarray = np.sqrt(np.matmul(rows[:, None], rows[:, :, None])[:, 0, 0])
    return norms

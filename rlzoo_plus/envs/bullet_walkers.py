"""The walkers of pybullet-envs-gymnasium, many at once: the numbers of the originals, bit for bit.

The plugin of our robots steps and reads all worlds in one call. What the originals compute of each
reading is computed of all; where one number may be rounded otherwise than many (products of
matrices, sums, angles), and where a walker decides itself, it is asked one by one. The originals
reset the worlds, and know of the running episode after `Walkers.give_back`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pybullet
from gymnasium.wrappers import TimeLimit
from pybullet_envs_gymnasium import gym_locomotion_envs as kinds
from pybullet_envs_gymnasium import robot_locomotors as robots_of

from rlzoo_plus.envs.episodes import RecordedEpisodes, WarmupResets, layers_of
from robots import native
from robots.plugin import PluginError, get_plugin
from robots.quiet import native_output_hidden
from robots.threads import Threads
from robots.vec_env import Transition

# HumanoidFlagrunHarder is none: with its cubes, it differs from itself now and then.
_KNOWN = {
    kinds.HopperBulletEnv: robots_of.Hopper,
    kinds.Walker2DBulletEnv: robots_of.Walker2D,
    kinds.HalfCheetahBulletEnv: robots_of.HalfCheetah,
    kinds.AntBulletEnv: robots_of.Ant,
    kinds.HumanoidBulletEnv: robots_of.Humanoid,
    kinds.HumanoidFlagrunBulletEnv: robots_of.HumanoidFlagrun,
}
_same: dict[type, bool] = {}


class Walkers:
    """Steps n walkers of one kind; the counterpart of `RobotVecEnv` for `BatchedRobots`."""

    def __init__(self, envs: Sequence[gym.Env]) -> None:
        """Take over the chains of wrappers around n walkers, from `make_env`.

        Raises:
            ValueError: `ROBOTS_THREADS` is no number of threads.
        """
        self._envs: list[Any] = [env.unwrapped for env in envs]
        self._limits = [_layer(env, TimeLimit) for env in envs]
        self._records = [_layer(env, RecordedEpisodes) for env in envs]
        self._max_steps = min(limit._max_episode_steps for limit in self._limits)
        n = len(envs)
        self._threads = Threads(n, hash(type(self._envs[0])))
        self._programs: native.Programs | None = None
        self._robots: list[Any] = [env.robot for env in self._envs]
        self._settings: list[Any] = []
        self._steps = np.zeros(n, np.int64)
        self._totals, self._potential = np.zeros(n), np.zeros(n)
        self._start_z: list[Any] = [0.0] * n
        self._feet = np.zeros((n, len(type(self._envs[0].robot).foot_list)), np.float32)
        self._terms: list[list[float]] = [[]] * n

    def take_over(self, index: int) -> None:
        """Continue from the state of one walker, which was reset or stepped by itself."""
        env, robot = self._envs[index], self._envs[index].robot
        self._steps[index] = self._limits[index]._elapsed_steps
        self._totals[index], self._potential[index] = env.reward, env.potential
        self._start_z[index] = robot.initial_z
        self._feet[index] = robot.feet_contact
        # The walker itself looks at it.
        robot.feet_contact = self._feet[index]

    def give_back(self, index: int) -> None:
        """Write the state of a world into its walker; the opposite of `take_over`."""
        env = self._envs[index]
        self._limits[index]._elapsed_steps = int(self._steps[index])
        # That of those who run to flags would count a step, and might move the flag.
        robots_of.WalkerBase.calc_state(env.robot)
        env.potential, env.reward = float(self._potential[index]), float(self._totals[index])
        env.rewards = list(self._terms[index])

    def mark(self, index: int) -> Any:
        """Return an object that is another one after each step and reset of one walker."""
        return self._envs[index].robot.body_xyz

    def step_worlds(self, actions: np.ndarray) -> Transition:
        """Act in all worlds, shape (n, n_joints); none is reset."""
        inputs = self.inputs(actions)
        n, n_joints = len(inputs), inputs.shape[1] - 1
        assert self._programs is not None
        rows = self._threads.timed(partial(self._programs.run, inputs))
        position, velocity, base, links, feet = np.split(rows, self._columns, axis=1)

        joints = np.empty((n, n_joints, 2), np.float32)
        joints[:, :, 0] = 2 * (position - self._lower) / self._range - 1.0
        joints[:, :, 1] = 0.1 * velocity
        joints = joints.reshape(n, -1)
        speeds = np.ascontiguousarray(joints[:, 1::2])
        at_limit = np.count_nonzero(np.abs(joints[:, 0::2]) > 0.99, axis=1)

        torso = self._torso(base, links)
        place, turn, speed = torso[:, :3], torso[:, 3:7], torso[:, 7:10]
        self._places[:, :, self._linked] = (
            links[:, : 3 * self._n_links].reshape(n, self._n_links, 3).transpose(0, 2, 1)
        )
        self._places[:, :, self._based] = base[:, :3, None]
        x, y = self._places[:, 0].mean(1), self._places[:, 1].mean(1)
        angles = np.array([pybullet.getEulerFromQuaternion(one) for one in turn.tolist()])
        yaw = np.ascontiguousarray(angles[:, 2])
        apart = np.stack([self._target[:, 1] - y, self._target[:, 0] - x], axis=1)
        angle = np.arctan2(apart[:, 0].copy(), apart[:, 1].copy()) - yaw
        distance = np.sqrt(np.array([one.dot(one) for one in apart]))
        turned = np.zeros((n, 3, 3))
        turned[:, 0, 0] = turned[:, 1, 1] = np.cos(-yaw)
        turned[:, 1, 0] = np.sin(-yaw)
        turned[:, 0, 1] = -turned[:, 1, 0]
        turned[:, 2, 2] = 1
        ahead = np.array([np.dot(one, v) for one, v in zip(turned, speed.copy(), strict=True)])
        more = np.empty((n, 8))
        more[:, 0] = place[:, 2] - np.array(self._start_z, np.float64)
        more[:, 1], more[:, 2] = np.sin(angle), np.cos(angle)
        more[:, 3:6] = 0.3 * ahead
        more[:, 6:8] = angles[:, :2]
        parts = [more.astype(np.float32), joints, self._feet]
        observation = np.clip(np.concatenate(parts, axis=1), -5, +5)

        potential = (-distance / self._dt).tolist()
        if self._are_chasing:
            self._chase(observation, np.stack([x, y, place[:, 2]], axis=1), distance)
        works = np.abs(actions * speeds).mean(1).tolist()
        stalls = np.square(actions).mean(1).tolist()
        finite = np.isfinite(observation).all(1).tolist()
        limited = at_limit.tolist()
        pitch = angles[:, 1].tolist()
        rewards, ends = np.empty(n), np.zeros(n, np.bool_)
        self._terms = []
        for i, env in enumerate(self._envs):
            height = observation[i, 0] + self._start_z[i]
            env._alive = float(env.robot.alive_bonus(height, pitch[i]))
            if self._are_chasing:
                potential[i] = env.robot.calc_potential()
            progress = float(potential[i] - self._potential[i])
            self._potential[i] = potential[i]
            electricity = env.electricity_cost * works[i]
            electricity += env.stall_torque_cost * stalls[i]
            limits = float(env.joints_at_limit_cost * limited[i])
            terms = [env._alive, progress, electricity, limits, 0.0]
            # By Python, whose newer versions carry the rounding errors.
            rewards[i], ends[i] = sum(terms), bool(env._isDone()) or not finite[i]
            self._terms.append(terms)
        # They are those of the step before until here.
        self._feet[:] = feet
        self._totals += rewards
        self._steps += 1
        for record, action, seen in zip(self._records, actions, observation, strict=True):
            if record is not None:
                record.note_step(action, seen)
        truncated = ~ends & (self._steps >= self._max_steps)
        return Transition(observation, rewards, ends, truncated, [{} for _ in range(n)])

    def _chase(self, seen: np.ndarray, places: np.ndarray, distances: np.ndarray) -> None:
        """Let walkers that run to flags do what their `calc_state` does, which draws new flags."""
        for robot, row, place, distance in zip(self._robots, seen, places, distances, strict=True):
            robot.body_xyz, robot.walk_target_dist = tuple(place), distance
            robot.flag_timeout -= 1
            if robot.walk_target_dist < 1 or robot.flag_timeout <= 0:
                robot.flag_reposition()
                row[:] = robots_of.WalkerBase.calc_state(robot)
                robot.potential = robot.calc_potential()

    def inputs(self, actions: np.ndarray) -> np.ndarray:
        """Return what the programs are given: torques, and a factor on them.

        Raises:
            AssertionError: An action is not a number, as the originals do.
        """
        assert np.isfinite(actions).all()
        if self._programs is None:
            self._load()
        settings = [(one.power, one.walk_target_x, one.walk_target_y) for one in self._robots]
        if settings != self._settings:
            self._settings = settings
            self._power = np.stack([_power_of(one) for one in self._robots])
            self._target = np.array([target for _, *target in settings])
        clipped = np.clip(actions, -1, +1)
        if self._is_humanoid:
            # Its factor is a number of Python, which takes the precision of the action.
            torques = (clipped * self._power.astype(clipped.dtype)).astype(np.float64)
        else:
            torques = clipped.astype(np.float64) * self._power
        return np.hstack([torques, np.ones((len(torques), 1))])

    def physics_alone(self) -> native.Programs:
        """Return programs that command and step the worlds, and read nothing; for benchmarks."""
        return native.Programs(get_plugin(), self._clients, self._commands, 0)

    def _torso(self, base: np.ndarray, links: np.ndarray) -> np.ndarray:
        """Return position, orientation and velocity of the part that stands for the body."""
        if self._torso_link is None:
            return base[:, :10]
        n, i = self._n_links, self._torso_link
        spans = ((3 * i, 3), (3 * n + 4 * i, 4), (7 * n + 3 * i, 3))
        return np.concatenate([links[:, a : a + width] for a, width in spans], axis=1)

    def _load(self) -> None:
        """Write the programs: the robots are loaded by their first reset."""
        first, robot = self._envs[0], self._envs[0].robot
        joints, parts = robot.ordered_joints, list(robot.parts.values())
        body = _body_of(robot.robot_body)
        own = [number for number, one in enumerate(parts) if _body_of(one) == body]
        self._linked = [number for number in own if parts[number].bodyPartIndex >= 0]
        self._based = [number for number in own if parts[number].bodyPartIndex < 0]
        links = [parts[number].bodyPartIndex for number in self._linked]
        torso = robot.robot_body.bodyPartIndex
        self._torso_link = None if torso < 0 else links.index(torso)
        self._n_links, n_joints = len(links), len(joints)
        self._columns = np.cumsum([n_joints, n_joints, 13, 13 * len(links)])
        self._are_chasing = isinstance(robot, robots_of.HumanoidFlagrun)
        self._is_humanoid = isinstance(robot, robots_of.Humanoid)
        motors = robot.motors if self._is_humanoid else joints
        order = [joints.index(motor) for motor in motors]
        self._lower = np.array([joint.lowerLimit for joint in joints])
        self._range = np.array([joint.upperLimit - joint.lowerLimit for joint in joints])
        self._dt = first.scene.dt
        self._places = np.stack(
            [[one.current_position() for one in env.robot.parts.values()] for env in self._envs]
        ).transpose(0, 2, 1)
        self._places = np.ascontiguousarray(self._places)
        numbers = 2 * n_joints + 13 + 13 * len(links) + self._feet.shape[1]
        self._clients = [env.physicsClientId for env in self._envs]
        self._commands = [_commands(env, order) for env in self._envs]
        pairs = zip(self._envs, self._commands, strict=True)
        programs = [[*commands, *_reads(env, links)] for env, commands in pairs]
        self._programs = native.Programs(get_plugin(), self._clients, programs, numbers)


def _commands(env: Any, order: list[int]) -> native.Program:
    """Return what commands the motors of one walker, its joints in this order, and steps it."""
    infos = _infos(env)
    rest = (0.0, 0.0, 0.0, -np.inf, np.inf)
    motors = [(column, *infos[joint], *rest) for column, joint in enumerate(order)]
    numbers = [number for motor in motors for number in motor]
    body, count, mode = _body_of(env.robot.robot_body), len(motors), pybullet.TORQUE_CONTROL
    commands = native.part(native.MOTORS, body, mode, count, count, *numbers)
    return [*commands, *native.part(native.STEP, 1)]


def _reads(env: Any, links: list[int]) -> native.Program:
    """Return what reads one walker: its joints, its base, these links and its feet."""
    robot, body = env.robot, _body_of(env.robot.robot_body)
    ((floor, _),) = env.ground_ids
    q, u = zip(*_infos(env), strict=True)
    indices = [joint.jointIndex for joint in robot.ordered_joints]
    feet = [foot.bodyPartIndex for foot in robot.feet]
    return [
        *native.part(native.READ, body, 1, 0, 0, 1, len(q), *q, *u, *indices),
        *native.part(native.LINKS, 1, 0, len(links), *links),
        *native.part(native.CONTACTS, body, floor, len(feet), *feet),
    ]


def _infos(env: Any) -> list[tuple[int, int]]:
    """Return Bullet's indices of the position and the velocity of each joint."""
    read, body = pybullet.getJointInfo, _body_of(env.robot.robot_body)
    indices = [joint.jointIndex for joint in env.robot.ordered_joints]
    return [read(body, i, physicsClientId=env.physicsClientId)[3:5] for i in indices]


def _power_of(robot: Any) -> np.ndarray:
    """Return the torque of the action 1 for each motor, shape (n_motors,)."""
    if isinstance(robot, robots_of.Humanoid):
        return np.array([power * robot.power for power in robot.motor_power])
    return np.array([robot.power * joint.power_coef for joint in robot.ordered_joints])


def _body_of(part: Any) -> int:
    body: int = part.bodies[part.bodyIndex]
    return body


def _layer(env: gym.Env, kind: type) -> Any:
    """Return the wrapper of a kind around an environment, None if there is none."""
    return next((layer for layer in layers_of(env) if isinstance(layer, kind)), None)


def why_not_walker(env: gym.Env) -> str | None:
    """Return why an environment from `make_env` cannot be one of `Walkers`; None if it can."""
    walker: Any = env.unwrapped
    kind = type(walker)
    if kind not in _KNOWN or type(walker.robot) is not _KNOWN[kind]:
        return f"{kind.__name__} is none of the walkers that can be stepped together"
    if _layer(env, TimeLimit) is None or _layer(env, WarmupResets) is None:
        return "it has no time limit, or no warm-up reset"
    try:
        get_plugin()
        if kind not in _same:
            _same[kind] = _steps_alike(kind)
    except PluginError as error:
        return str(error)
    if not _same[kind]:
        native.say(f"{kind.__name__} comes to other numbers.")
        return "the plugin steps it to other numbers than PyBullet does"
    return None


def _steps_alike(kind: type) -> bool:
    """Step one walker as it is and another as one of many, from the same start."""
    with native_output_hidden():
        both: list[Any] = [WarmupResets(TimeLimit(kind(), 10), 1) for _ in range(2)]
        try:
            for env in both:
                env.reset(seed=0)
            alone, batch = both[0], Walkers(both[1:])
            batch.take_over(0)
            actions = np.random.default_rng(0).uniform(-1, 1, (2, *alone.action_space.shape))
            for action in actions.astype(np.float32):
                seen, reward, ended, _, _ = alone.step(action)
                moved = batch.step_worlds(action[None])
                if moved.observation.tobytes() != seen.tobytes() or moved.reward[0] != reward:
                    return False
                if bool(moved.terminated[0]) != ended:
                    return False
            return True
        finally:
            for env in both:
                env.close()

"""A robot behind a driver in place of an environment's world: sensed, checked, commanded, paced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.control.commanding import (
    POSITION,
    Commander,
    beyond,
    check_unit,
    said,
    signal_of,
)
from rlzoo_plus.control.faults import (
    CONNECTION,
    DEADLINES,
    JOINT,
    SENSOR,
    STALE,
    START,
    Fault,
    Rules,
)
from rlzoo_plus.control.pacing import Clock, Pacer
from rlzoo_plus.drivers.driver import (
    Description,
    Driver,
    Reading,
    Signal,
    Values,
    columns_by_name,
)
from rlzoo_plus.errors import ConfigError
from robots.env import BaseRobotEnv
from robots.robot import InitialState
from robots.sensors import JOINT_UNITS
from robots.simulation import JointInfo

Floats = NDArray[np.float64]
# How far a measured joint may be beyond its limits, and how near to them it touches them, as parts
# of their width.
_BEYOND, _TOUCHING = 0.02, 0.005
# How far from its start pose a joint may be [rad; of a slider m].
_NEAR, _NEAR_SLIDER = 0.1, 0.05
# A slider starts this much slower than a hinge, in m/s and rad/s.
_SLIDER_SPEED = 0.1
# How long a robot may lag behind the motion to its start pose.
_SETTLING_S = 2.0
# Follows from the joints where the base is fixed.
_OF_KINEMATICS = ("base_", "link_")
# What an environment takes for 0 at the start of an episode.
_ZERO_AT_START = ("joint_effort", "contact")


@dataclass(frozen=True)
class Acted:
    """What was decided in one period."""

    time_s: float  # When the robot measured what the decision is from
    readings: list[float]  # That, in the order of `Sensors`
    targets: list[float]  # Of the drive
    commands: Mapping[str, Floats]  # What was sent, or would have been


class DrivenBody:
    """The `Body` of an environment: its robot behind a driver.

    Attributes:
        acted: What was decided last.
        episodes_left: How many more episodes may start; with 0 the robot stays where it is.
        is_done: Whether one was to start after the last.
        touched: In how many periods a joint or a command was at its limits, by name.
        decisions_s: Time from each reading to its command.
        safe_action: What the robot does when it must not go on.
    """

    def __init__(
        self,
        env: BaseRobotEnv,
        driver: Driver,
        rules: Rules,
        clock: Clock,
        *,
        attend: Callable[[], None] = lambda: None,
        ask: Callable[[], None] = lambda: None,
        idle: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Match what the environment needs with what the robot has, by name; nothing moves.

        Args:
            env: The environment; this takes the place of its world.
            driver: Connected.
            rules: What is watched.
            clock: Of the periods.
            attend: Called every period; raises the `Fault` of a signal or an override.
            ask: Called before each episode, before anything moves.
            idle: Called every period when the command is sent.
            tell: Takes what the operator should know.

        Raises:
            ConfigError: The robot lacks what the task needs, or has it in another unit.
        """
        self._env, self._driver, self._rules, self._clock = env, driver, rules, clock
        self._attend, self._ask, self._idle, self._tell = attend, ask, idle, tell
        self.robot = robot = driver.describe()
        self._columns, self._derived = _match(env, robot)
        self.commander = Commander(env.robot.drive, robot)
        self.pacer = Pacer(clock, rules.period_s, rules.most_missed)
        self._joints = {joint.name: at for at, joint in enumerate(env.robot.joints)}
        self._near = np.array([_NEAR_SLIDER if j.slides else _NEAR for j in env.robot.joints])
        self._row: list[float] = [0.0] * env.world.sensors.n_numbers
        self._positions = _with_limits(robot.sensors[POSITION], env.robot.joints)
        self._values: Values = {}
        self._read_s = self._measured_s = 0.0
        self._sent_s: float | None = None
        self.safe_action = rules.safe_action
        self.acted: Acted | None = None
        self.episodes_left, self.is_done = 0, False
        self.touched: dict[str, int] = {}
        self.decisions_s: list[float] = []
        env.embody(self)

    def start(self, initial: InitialState) -> list[float]:
        """Bring the robot to the start of an episode, and return what it reads there.

        Raises:
            Fault: Something of what is watched.
        """
        self.make_safe()
        if self.episodes_left <= 0:
            self.is_done = True
            return self._row
        self.episodes_left -= 1
        self._ask()
        self.pacer.restart()
        if not self._rules.dry_run:
            self._call(lambda: self._driver.reset(self._env.np_random_seed))
            self._sense()
            self.commander.hold_others(self._values, self.robot)
            self._go_to(np.array(initial.joint_position, np.float64))
            self.pacer.restart()
        row = self.read()
        for name, span, _ in self._columns:
            if name in _ZERO_AT_START:
                row[span] = [0.0] * len(row[span])
        return row

    def advance(self, targets: list[float]) -> None:
        """Send what a row of targets commands.

        Raises:
            Fault: It is not a number, or beyond the robot's limits.
        """
        self._attend()
        self.pacer.check()
        commands = self.commander.commands(targets)
        # What projects commands onto limits would do so here: decided, checked, not yet sent.
        self.acted = Acted(self._measured_s, self._row, targets, commands)
        self._send(commands)
        self.decisions_s.append(self._clock.now() - self._read_s)
        for kind, values in commands.items():
            self._count_touched("command", self.robot.commands[kind], values)
        self._idle()

    def read(self) -> list[float]:
        """Wait for the end of the period, and return what the robot reads.

        Raises:
            Fault: Something of what is watched.
        """
        self.pacer.wait()
        self._attend()
        return self._sense()

    def make_safe(self) -> None:
        """Let the robot do its safe action, unless nothing is to be commanded.

        Raises:
            Fault: It does not answer.
        """
        self._sent_s = None
        if not self._rules.dry_run:
            self._call(lambda: self._driver.stop(self.safe_action))

    def _call(self, call: Callable[[], object]) -> object:
        try:
            return call()
        # A driver of the user's can raise anything.
        except Exception as error:
            raise Fault(CONNECTION, one_line(error)) from error

    def _send(self, commands: Mapping[str, Floats]) -> None:
        now, watchdog_s = self._clock.now(), self.robot.watchdog_s or np.inf
        if self._sent_s is not None and now - self._sent_s > watchdog_s:
            late = f"no command for {1000 * (now - self._sent_s):.0f} ms"
            raise Fault(DEADLINES, f"{late}, and the robot waits for {1000 * watchdog_s:.0f} ms")
        self._sent_s = now
        if not self._rules.dry_run:
            self._call(lambda: self._driver.write(commands))

    def _sense(self) -> list[float]:
        """Return what the robot reads now as a row of `Sensors`, checked."""
        reading = self._call(self._driver.read)
        assert isinstance(reading, Reading)
        age_s = self._clock.age_of(reading.time_s)
        if age_s > self._rules.stale_s:
            raise Fault(STALE, f"the newest reading is {1000 * age_s:.0f} ms old")
        row: list[float] = [0.0] * len(self._row)
        for name, span, columns in self._columns:
            values = reading.values[name][columns]
            if not np.isfinite(values).all():
                at = int(np.flatnonzero(~np.isfinite(values))[0])
                entry = self.robot.sensors[name].names[columns[at]]
                raise Fault(SENSOR, f"{name} {entry} is {values[at]}")
            row[span] = values.tolist()
        positions, signal = reading.values[POSITION], self._positions
        if far := beyond(positions, signal, _BEYOND):
            raise Fault(JOINT, said(positions, signal, far[0]))
        if self._derived or self.commander.solves:
            n_joints = len(self._joints)
            self._env.robot.reset(
                self._env.robot.at_rest._replace(
                    joint_position=row[:n_joints], joint_velocity=row[n_joints : 2 * n_joints]
                )
            )
            known = self._env.world.sensors.read() if self._derived else []
            for span in self._derived:
                row[span] = known[span]
        self._count_touched("position", signal, positions)
        self._read_s = self._clock.now()
        self._row, self._measured_s = row, self._read_s - age_s
        self._values = reading.values
        return row

    def _go_to(self, wanted: Floats) -> None:
        """Move slowly to positions where positions are commanded, else wait until it is there."""
        columns = list(range(len(wanted)))
        if self.commander.are_positions:
            columns = [self._joints[j.name] for part in self.commander.parts for j in part.joints]
        if self._is_at(wanted, columns):
            return
        if not self.commander.are_positions:
            self._tell(f"put the robot where an episode starts: {self._distances(wanted)}")
            while not self._is_at(wanted, columns):
                self.pacer.restart()
                self._clock.wait_until(self._clock.now() + self._rules.period_s)
                self.read()
            return
        slides = np.array([self._env.robot.joints[column].slides for column in columns])
        step = self._rules.start_speed * self._rules.period_s
        steps = np.where(slides, _SLIDER_SPEED * step, step)
        goal, command = wanted[columns], np.array(self._row)[columns]
        n_steps = int(np.ceil(np.max(np.abs(goal - command) / steps)))
        self._tell(f"moving to where an episode starts: {n_steps * self._rules.period_s:.1f} s")
        for _ in range(n_steps + round(_SETTLING_S / self._rules.period_s)):
            command = command + np.clip(goal - command, -steps, steps)
            self._send(self.commander.at(command.tolist()))
            self._idle()
            self.read()
            if (command == goal).all() and self._is_at(wanted, columns):
                return
        raise Fault(START, self._distances(wanted))

    def _is_at(self, wanted: Floats, columns: list[int]) -> bool:
        off = np.abs(wanted - np.array(self._row[: len(wanted)]))
        return bool((off <= self._near)[columns].all())

    def _distances(self, wanted: Floats) -> str:
        pairs = zip(self._joints, self._row, wanted, self._near, strict=False)
        off = [f"{n} is at {x:.2f}, not {y:.2f}" for n, x, y, near in pairs if abs(x - y) > near]
        return ", ".join(off)

    def _count_touched(self, sort: str, signal: Signal, values: Floats) -> None:
        for at in beyond(values, signal, -_TOUCHING):
            name = f"{signal.names[at]} {sort}"
            self.touched[name] = self.touched.get(name, 0) + 1


def _match(
    env: BaseRobotEnv, robot: Description
) -> tuple[list[tuple[str, slice, list[int]]], list[slice]]:
    """Return where the robot has what each part of a row is, and the parts that follow from it."""
    sensors = env.world.sensors
    if sensors.spec.camera is not None:
        raise ConfigError("this task looks through a camera, which drivers do not read yet.")
    if len(env.world.robots) > 1:
        raise ConfigError("this task has several robots, and a driver is of one.")
    found: list[tuple[str, slice, list[int]]] = []
    derived: list[slice] = []
    lacking = []
    start = 0
    for name, entries in sensors.layout().items():
        span = slice(start, start := start + len(entries))
        if name in robot.sensors:
            signal = robot.sensors[name]
            found.append((name, span, columns_by_name(name, entries, signal.names)))
            if name in JOINT_UNITS:
                check_unit(name, signal, env.robot.joints)
        elif name.startswith(_OF_KINEMATICS) and not env.robot.free_base:
            derived.append(span)
        else:
            lacking.append(name)
    if lacking:
        raise ConfigError(
            f"{robot.robot} does not sense {', '.join(lacking)}, which this task needs. It "
            f"senses: {', '.join(robot.sensors) or 'nothing'}. Let the driver estimate them, or "
            "use a task without."
        )
    signal_of(robot.sensors, POSITION, "sense", robot.robot)
    return found, derived


def _with_limits(signal: Signal, joints: Sequence[JointInfo]) -> Signal:
    """Return what positions are read, with the limits of the robot's file where it gives none."""
    if signal.lower is not None or signal.upper is not None:
        return signal
    known = {j.name: (j.lower, j.upper) for j in joints if j.lower < j.upper}
    limits = [known.get(name, (-np.inf, np.inf)) for name in signal.names]
    lower, upper = zip(*limits, strict=True)
    return replace(signal, lower=lower, upper=upper)

"""A driver of a robot environment's own world, in this process, with faults at a chosen step."""

import numpy as np

from rlzoo_plus.control.pacing import Clock
from rlzoo_plus.drivers.driver import Description, Driver, DriverError, Reading, Signal


class FakeClock(Clock):
    """Time passes when somebody waits, or when a test lets it."""

    def __init__(self):
        self.time_s = 100.0

    def now(self):
        return self.time_s

    def wait_until(self, time_s):
        self.time_s = max(self.time_s, time_s)


class WorldDriver(Driver):
    """The robot of an environment, stepped by each command.

    Attributes:
        written: All commands.
        stops: When it was told to be safe, and how.
        fault: What goes wrong: `stale`, `nan`, `joint`, `read`, `write`, or a function to call.
        fault_at: The number of the command after which it does.
        fault_s: When it did.
    """

    def __init__(self, env, kind, clock, order=None, watchdog_s=0.04):
        self.env, self.kind, self.clock = env, kind, clock
        self.motors = env.robot.drive.motors
        self.order = order or list(range(len(self.motors.joints)))
        self.written, self.stops, self.resets = [], [], []
        self.fault, self.fault_at, self.fault_s = None, 10**9, None
        self.watchdog_s, self.is_connected = watchdog_s, False
        self.limit = None
        self.sensors = None
        self.can_reset = True

    def connect(self):
        self.is_connected = True
        self.env.reset(seed=0)
        self.row, self.read_s = list(self.env.readings), self.clock.now()

    def describe(self):
        joints = self.env.robot.joints
        units = {
            "joint_position": ("rad", "m"),
            "joint_velocity": ("rad/s", "m/s"),
            "joint_torque": ("N m", "N"),
            "joint_effort": ("N m", "N"),
        }

        def unit(name, of):
            return ",".join(units[name][j.slides] for j in of) if name in units else "1"

        sensors = {
            name: Signal(entries, unit(name, joints))
            for name, entries in self.env.world.sensors.layout().items()
        }
        if self.sensors is not None:
            sensors = self.sensors(sensors)
        chosen = [self.motors.joints[i] for i in self.order]
        limits = None if self.limit is None else (self.limit,) * len(chosen)
        command = Signal(
            tuple(joint.name for joint in chosen), unit(self.kind, chosen),
            None if limits is None else tuple(-x for x in limits), limits,
        )  # fmt: skip
        commands = {self.kind: command}
        return Description("twin", 1000.0, sensors, commands, watchdog_s=self.watchdog_s)

    def _is_due(self, *kinds):
        due = self.fault in kinds and len(self.written) >= self.fault_at
        if due and self.fault_s is None:
            self.fault_s = self.clock.now()
        return due

    def read(self):
        if self._is_due("read"):
            raise DriverError("the cable is out")
        if not self._is_due("stale"):
            self.read_s = self.clock.now()
        values, start = {}, 0
        for name, entries in self.env.world.sensors.layout().items():
            values[name] = np.array(self.row[start : start + len(entries)])
            start += len(entries)
        if self._is_due("nan"):
            values["joint_velocity"][-1] = np.nan
        if self._is_due("joint"):
            values["joint_position"][0] = 1e3
        if self.sensors is not None:
            values = {name: values[name] for name in self.describe().sensors}
        return Reading(self.read_s, values)

    def write(self, commands):
        if self._is_due("write"):
            raise DriverError("the cable is out")
        (row,) = commands.values()
        self.written.append(row)
        targets = [0.0] * len(self.order)
        for place, motor in enumerate(self.order):
            targets[motor] = float(row[place])
        self.env.robot.drive.advance(targets)
        self.row = self.env.world.sensors.read()
        if callable(self.fault) and len(self.written) == self.fault_at:
            self.fault_s = self.clock.now()
            self.fault()

    def stop(self, action):
        self.stops.append((self.clock.now(), action))

    def disconnect(self):
        self.is_connected = False

    def reset(self, seed=None):
        self.resets.append(seed)
        if self.can_reset:
            self.env.reset(seed=seed)
            self.env.episode.actions.append(None)
            self.row = list(self.env.readings)

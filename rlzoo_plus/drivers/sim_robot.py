"""The inside of a simulated robot's process: a world on a clock, and what goes wrong with it."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.drivers.driver import unit_of
from rlzoo_plus.drivers.robot_end import CloseConnection, RobotEnd
from rlzoo_plus.drivers.sim_driver import SimSettings
from rlzoo_plus.drivers.sim_motors import SimMotors
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import USER_ERROR, ConfigError
from robots.env import BaseRobotEnv

# A process that was suspended does not catch up with all of that.
_MOST_LATE_S = 0.25
_IDLE_S = 0.5
# Of a number of steps: their length is rounded to single precision.
_ROUNDING = 1e-3


class SimRobot:
    """A world of `robots` that is stepped by commands, or by the clock; for `RobotEnd`.

    On the real clock the world stands still before the first command after a start; from then on
    it takes a control step each period, whatever the client does.
    """

    def __init__(self, settings: SimSettings) -> None:
        """Make the world and put it where an episode starts.

        Raises:
            ConfigError: The environment cannot be made, or a driver cannot reach its robot.
        """
        spec = EnvConfig(
            id=settings.env,
            packages=settings.packages,
            kwargs=settings.kwargs,
            wrappers=[],
            frame_stack=1,
            time_limit=None,
            warmup_resets=0,
            max_return=None,
            solved_return=None,
        )
        made: Any = make_env(spec).unwrapped
        if not isinstance(made, BaseRobotEnv) or len(made.world.robots) > 1:
            raise ConfigError(
                f"env={settings.env} is no environment of one robot. Name one built on `robots`, "
                "such as robots/CartPoleBalance-v0."
            )
        self._env, self._settings = made, settings
        self._motors = SimMotors(made, settings.stuck)
        self._layout = made.world.sensors.layout()
        self._step_s = made.simulation.step_s
        self._is_real = settings.clock == "real"
        self._draws = np.random.default_rng(settings.seed)
        self._n_steps = 0
        self._is_running = False
        self._next_s = math.inf
        self._frozen: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        # Commands that have not come into effect, and after how many steps they do.
        self._coming: deque[tuple[float, Mapping[str, Any]]] = deque()
        self.reset(settings.seed)

    def connect(self) -> None:
        """Start the times of what goes wrong."""
        self._n_steps, self._frozen = 0, None

    def describe(self) -> dict[str, Any]:
        """Return what its sensors read and its motors take."""
        slides = [joint.slides for joint in self._env.robot.joints]
        sensors = {
            name: {"names": entries, "unit": unit_of(name, slides)}
            for name, entries in self._layout.items()
        }
        return {
            "robot": self._settings.env,
            "rate_hz": 1 / self._step_s,
            "sensors": sensors,
            "commands": self._motors.described,
            "safe_actions": self._motors.safe_actions,
        }

    def read(self) -> dict[str, Any]:
        """Return what the sensors read last, or what a fault makes of it."""
        settings = self._settings
        self._break_if_due()
        if self._frozen is not None:
            return self._frozen
        if self._last is not None and settings.dropped and self._draws.random() < settings.dropped:
            return self._last
        row, values, start = self._row, {}, 0
        for name, names in self._layout.items():
            values[name] = row[start : start + len(names)]
            start += len(names)
        if self._is_after(settings.nan_after_s):
            values["joint_position"] = [math.nan] * len(self._layout["joint_position"])
        is_moving = self._is_real and self._is_running
        at_s = self._measured_s if is_moving else time.monotonic()
        self._last = {"time_s": at_s, "values": values}
        if self._is_after(settings.stale_after_s):
            self._frozen = self._last
        return self._last

    def write(self, commands: Mapping[str, Any]) -> None:
        """Let the motors follow commands, after the latency."""
        self._break_if_due()
        delay_s = self._settings.latency_s
        if self._settings.jitter_s:
            delay_s += self._draws.uniform(0.0, self._settings.jitter_s)
        due = self._n_steps + delay_s / self._step_s
        # One does not overtake another.
        self._coming.append((max(due, self._coming[-1][0]) if self._coming else due, commands))
        if not self._is_real:
            self._step()
        elif not self._is_running:
            self._run()

    def stop(self, action: str) -> None:
        """Do a safe action from the next control step on."""
        self._coming.clear()
        self._motors.stop(action)

    def reset(self, seed: int | None) -> None:
        """Put the world where the task starts an episode, as the environment does."""
        self._env.reset(seed=seed)
        self._row = self._env.readings
        self._motors.start(self._row)
        self._coming.clear()
        self._is_running, self._next_s, self._last = False, math.inf, None

    def disconnect(self) -> None:
        """Do nothing: the robot does its safe action."""

    def tick(self) -> float:
        """Take the steps that are due by the clock; return the time to the next [s]."""
        now_s = time.monotonic()
        if self._next_s <= now_s - _MOST_LATE_S:
            self._next_s = now_s
        if self._next_s <= now_s:
            self._next_s += self._step_s
            self._step()
            self._break_if_due()
        return min(_IDLE_S, max(0.0, self._next_s - time.monotonic()))

    def _run(self) -> None:
        # Half a period after the first command, so that a client that keeps the rate, though it is
        # sometimes a little late, sees each step once and commands each one.
        self._is_running = True
        self._measured_s = time.monotonic()
        self._next_s = self._measured_s + 0.5 * self._step_s

    def _step(self) -> None:
        while self._coming and self._coming[0][0] <= self._n_steps + _ROUNDING:
            self._motors.follow(self._coming.popleft()[1])
        # After a step the environment starts the next episode otherwise than after a start.
        self._env.episode.actions.append(None)
        self._motors.advance(self._row)
        self._n_steps += 1
        self._row = self._env.world.sensors.read()
        self._measured_s = time.monotonic()

    def _break_if_due(self) -> None:
        if self._is_after(self._settings.disconnect_after_s):
            raise CloseConnection("the connection was broken, as asked for")

    def _is_after(self, time_s: float | None) -> bool:
        return time_s is not None and self._n_steps + _ROUNDING >= time_s / self._step_s


def serve(ticket: dict[str, Any]) -> int:
    """Serve a simulated robot until the input ends; write its port, or an error, to the output."""
    # Engines print to the output, too.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        try:
            read = SimSettings(**ticket["settings"])
            robot = SimRobot(read)
            watchdog_s = read.watchdog_s if read.clock == "real" else math.inf
            end = RobotEnd(robot, watchdog_s=watchdog_s, safe_action=read.safe_action)
        except ValueError as error:
            json.dump({"error": str(error)}, answers)
            return USER_ERROR
        json.dump({"port": end.address[1]}, answers)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_with_input, daemon=True).start()
    end.serve()
    return 0


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)

"""How fast a robot is safe: faults in a real-time loop with a simulated robot in its own process.

`python -m benchmarks.robot_faults` tries each kind of fault 20 times on a cart-pole at 50 Hz, and
counts how often the robot has done its safe action within two periods of the moment from which the
loop could know, with the right cause named. A loop that is frozen, then killed, counts by what the
robot's own end says of its watchdog. It also runs a while undisturbed, for the error of the period.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import rlzoo_plus
from rlzoo_plus.control import faults
from rlzoo_plus.control.attention import Attention
from rlzoo_plus.control.control_loop import ControlLoop
from rlzoo_plus.control.faults import Rules
from rlzoo_plus.control.pacing import RealClock
from rlzoo_plus.control.session import Session
from rlzoo_plus.drivers.driver import Driver, DriverError, Reading
from rlzoo_plus.drivers.factory import make_driver

POLICY = "trained/cartpole_bullet_mujoco"
PERIOD_S = 0.02
PERIODS = 2
_AT = 25
# What is named for each.
CAUSES = {
    "stale": faults.STALE,
    "nan": faults.SENSOR,
    "joint": faults.JOINT,
    "connection": faults.CONNECTION,
    "policy_nan": faults.ACTION,
    "policy_limits": faults.OUTSIDE,
    "policy_error": faults.POLICY,
    "deadlines": faults.DEADLINES,
    "sigterm": faults.SIGNAL,
    "override": faults.OVERRIDE,
}
# Of the robot's own end, when the loop's process stands still.
_WATCHDOG = re.compile(r"no command came for (\d+) ms")


class Watched(Driver):
    """A driver whose calls are timed, and which fails in a chosen way after some commands."""

    def __init__(self, driver: Driver, kind: str) -> None:
        self.driver, self.kind, self.fails = driver, kind, lambda: None
        self.n_written, self.fault_s, self.safe_s = 0, 0.0, 0.0
        self.old: Reading | None = None

    def connect(self) -> None:
        """Reach the robot."""
        self.driver.connect()

    def describe(self) -> Any:
        """Return what it is."""
        return self.driver.describe()

    def reset(self, seed: int | None = None) -> None:
        """Put it at the start."""
        self.driver.reset(seed)

    def disconnect(self) -> None:
        """Keep it for the next trial."""

    def write(self, commands: Any) -> None:
        """Command it."""
        self.driver.write(commands)
        self.n_written += 1
        if self.n_written == _AT:
            self.fails()

    def stop(self, action: str) -> None:
        """Make it safe, and remember when."""
        self.driver.stop(action)
        if self.fault_s and not self.safe_s:
            self.safe_s = time.monotonic()

    def read(self) -> Reading:
        """Return a reading, or what a fault makes of it."""
        is_due = self.n_written >= _AT
        if is_due and self.kind in ("stale", "nan", "joint", "connection") and not self.fault_s:
            self.fault_s = time.monotonic()
        if is_due and self.kind == "connection":
            raise DriverError("the cable is out")
        found = self.driver.read()
        if is_due and self.kind == "stale" and self.old is not None:
            return self.old
        self.old = found
        values = {name: row.copy() for name, row in found.values.items()}
        if is_due and self.kind == "nan":
            values["joint_velocity"][0] = np.nan
        if is_due and self.kind == "joint":
            values["joint_position"][0] = 1e3
        return Reading(found.time_s, values)


class Failing:
    """A policy that fails in a chosen way when it is told to."""

    def __init__(self, policy: Any, kind: str, driver: Watched) -> None:
        self._policy, self._kind, self._driver = policy, kind, driver
        self.maskable, self.action_space = policy.maskable, policy.action_space

    def predict(self, *given: Any) -> Any:
        """Choose an action."""
        actions, state = self._policy.predict(*given)
        if self._driver.n_written < _AT or self._kind not in _OF_POLICY:
            return actions, state
        if not self._driver.fault_s:
            # Decisions are late when two deadlines are over.
            late_s = PERIODS * PERIOD_S if self._kind == "deadlines" else 0.0
            self._driver.fault_s = time.monotonic() + late_s
        return _OF_POLICY[self._kind](actions), state


def _late(actions: np.ndarray) -> np.ndarray:
    time.sleep(2.1 * PERIOD_S)
    return actions


def _error(actions: np.ndarray) -> np.ndarray:
    raise IndexError("there is no such leg")


_OF_POLICY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "policy_nan": lambda actions: actions * np.nan,
    "policy_limits": lambda actions: actions + 3,
    "policy_error": _error,
    "deadlines": _late,
}


def trial(kind: str, run: Any, policy: Any, venv: Any, driver: Driver) -> tuple[float, str]:
    """Run into a fault; return how long the robot took to be safe [s], and the cause named."""
    watched = Watched(driver, kind)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "session")

        def fail() -> None:
            watched.fault_s = time.monotonic()
            if kind == "sigterm":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                (session.folder / "override").write_text("stop")

        if kind in ("sigterm", "override"):
            watched.fails = fail
        attention = Attention(session.folder, driver.describe().safe_actions)
        loop = ControlLoop(
            Failing(policy, kind, watched), venv, watched, Rules("stop", PERIOD_S), session,
            attention, clock=RealClock(),
        )  # fmt: skip
        if kind == "override":
            # Nobody releases it.
            loop._obey = lambda asked: (_ for _ in ()).throw(asked)  # type: ignore[method-assign]
        outcome = loop.run(1, 5.0, 0, {})
    return (watched.safe_s - watched.fault_s if watched.fault_s else np.inf), outcome.cause


def frozen(port: int, probe: Driver) -> tuple[float, str]:
    """Freeze the process of a loop, then kill it; return what the robot's end says it took [s]."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "s" / "log.csv"
        words = ["run-robot", POLICY, "--driver", "socket", "--set", f"port={port}"]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "rlzoo_plus",
                *words,
                "--minutes",
                "2",
                "--out",
                str(log.parent),
            ],
            stdout=subprocess.DEVNULL,
        )
        while not log.is_file() or len(log.read_text().splitlines()) < _AT:
            time.sleep(0.05)
            if process.poll() is not None:
                return np.inf, "it ended by itself"
        process.send_signal(signal.SIGSTOP)
        time.sleep(10 * PERIOD_S)
        process.kill()
        process.wait()
    probe.connect()
    last = getattr(probe, "last_stop", None) or {"cause": "none"}
    probe.disconnect()
    found = _WATCHDOG.search(last["cause"])
    return (int(found[1]) / 1000 if found else np.inf), str(last["cause"])


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    parser.add_argument("--frozen", type=int, default=20, help="of a frozen loop; each takes 10 s")
    parser.add_argument("--seconds", type=float, default=60.0, help="undisturbed")
    options = parser.parse_args()
    run = rlzoo_plus.Run.open(POLICY)
    policy, env = run.policy(), run.config.env
    settings = {"env": env.id, "kwargs": env.kwargs, "packages": env.packages}
    rows: dict[str, Any] = {}
    driver = make_driver("sim", settings)
    driver.connect()
    with closing(run.env(1)) as venv:
        for kind, cause in CAUSES.items():
            found = [trial(kind, run, policy, venv, driver) for _ in range(options.trials)]
            rows[kind] = _row(found, cause)
        with tempfile.TemporaryDirectory() as folder:
            session = Session(Path(folder) / "session")
            attention = Attention(session.folder, driver.describe().safe_actions)
            rules = Rules("stop", PERIOD_S)
            loop = ControlLoop(policy, venv, driver, rules, session, attention, clock=RealClock())
            outcome = loop.run(None, options.seconds, 0, {})
            rows["undisturbed"] = {"ended": outcome.cause, **outcome.numbers}
    if options.frozen:
        # A little less than two periods, since what stops the robot takes a moment.
        robot: Any = make_driver("sim", {**settings, "watchdog_s": 1.8 * PERIOD_S})
        port = robot._start()
        probe = make_driver("socket", {"port": port})
        found = [frozen(port, probe) for _ in range(options.frozen)]
        rows["frozen"] = _row(found, "no command came")
        robot._end()
    rows["load"] = os.getloadavg()
    print(json.dumps(rows, indent=1))


def _row(found: list[tuple[float, str]], cause: str) -> dict[str, Any]:
    is_safe = [s <= PERIODS * PERIOD_S and cause in text for s, text in found]
    others = sorted({text for (_, text), one in zip(found, is_safe, strict=True) if not one})
    slowest = max(s for s, _ in found)
    return {"safe": sum(is_safe), "of": len(found), "slowest_ms": 1000 * slowest, "others": others}


if __name__ == "__main__":
    main()

"""The contract of every driver: what it says of its robot, reads, refuses, and how it stops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from rlzoo_plus.drivers.driver import SAFE_ACTIONS, Driver, DriverError
from robots.sensors import State

COMMANDS = {"joint_position", "joint_velocity", "joint_torque"}


class DriverContract:
    """The suite for drivers; the fixture `driver` returns one that has not connected yet.

    Nothing but the robot may hold it up: the suite commands it to stay where it is.
    """

    # Whether the same seed gives the same start.
    resets: ClassVar[bool] = True

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls) -> Iterator[Driver]:
        """Return the driver."""
        raise NotImplementedError("give the suite a fixture `driver`")

    @pytest.fixture
    def robot(self, driver: Driver) -> Iterator[Driver]:
        """Return the driver, connected, at the start of an episode."""
        driver.connect()
        driver.reset(0)
        yield driver
        driver.connect()
        driver.stop(driver.describe().safe_actions[0])

    def test_what_it_describes_fits_together(self, robot: Driver) -> None:
        described = robot.describe()
        assert described.robot
        assert described.rate_hz > 0
        assert described.watchdog_s is None or described.watchdog_s > 0
        assert described.safe_actions
        assert set(described.safe_actions) <= set(SAFE_ACTIONS)
        assert set(described.sensors) <= set(State._fields)
        assert described.commands
        assert set(described.commands) <= COMMANDS
        for signal in (*described.sensors.values(), *described.commands.values()):
            assert len(set(signal.names)) == len(signal.names) > 0
            assert all(signal.unit.split(","))
            for limits in (signal.lower, signal.upper):
                assert limits is None or len(limits) == len(signal.names)
            if signal.lower is not None and signal.upper is not None:
                assert (np.array(signal.lower) <= np.array(signal.upper)).all()

    def test_a_reading_has_a_number_for_each_name(self, robot: Driver) -> None:
        reading = robot.read()
        sensors = robot.describe().sensors
        assert set(reading.values) == set(sensors)
        for name, signal in sensors.items():
            assert reading.values[name].dtype == np.float64
            assert reading.values[name].shape == (len(signal.names),)
            assert np.isfinite(reading.values[name]).all()

    def test_times_are_those_of_this_process_and_never_run_back(self, robot: Driver) -> None:
        begin_s = time.monotonic()
        times = []
        for _ in range(3):
            robot.write(staying(robot))
            times.append(robot.read().time_s)
        assert times == sorted(times)
        assert begin_s - 60 < times[0]
        assert times[-1] <= time.monotonic()

    def test_it_connects_once_and_again_after_it_let_go(self, robot: Driver) -> None:
        robot.connect()
        before = robot.describe()
        robot.disconnect()
        robot.disconnect()
        robot.connect()
        assert robot.describe() == before
        robot.read()

    def test_nothing_works_before_it_has_connected(self, robot: Driver) -> None:
        commands = staying(robot)
        robot.disconnect()
        for call in (robot.read, lambda: robot.write(commands), lambda: robot.stop("stop")):
            with pytest.raises(DriverError):
                call()

    @pytest.mark.parametrize("mistake", ["a name less", "a name more", "a number less", "NaN"])
    def test_a_command_that_makes_no_sense_is_refused(self, robot: Driver, mistake: str) -> None:
        commands = staying(robot)
        name = next(iter(commands))
        if mistake == "a name less":
            del commands[name]
        elif mistake == "a name more":
            commands["joint_colour"] = np.zeros(1)
        elif mistake == "a number less":
            commands[name] = commands[name][:-1]
        else:
            commands[name] = np.full_like(commands[name], np.nan)
        with pytest.raises(DriverError):
            robot.write(commands)
        # It has stopped, or will; a command that makes sense counts again when that was seen.
        robot.stop(robot.describe().safe_actions[0])
        robot.write(staying(robot))

    def test_each_safe_action_can_be_repeated_and_ends_with_a_command(self, robot: Driver) -> None:
        for action in robot.describe().safe_actions:
            robot.stop(action)
            robot.stop(action)
            robot.write(staying(robot))

    def test_a_safe_action_that_it_has_not_is_refused(self, robot: Driver) -> None:
        with pytest.raises(DriverError):
            robot.stop("jump")

    def test_the_same_seed_gives_the_same_start(self, robot: Driver) -> None:
        if not self.resets:
            pytest.skip("nothing puts this robot where an episode starts")
        robot.reset(7)
        first = robot.read().values
        robot.write(staying(robot))
        robot.reset(7)
        for name, row in robot.read().values.items():
            np.testing.assert_array_equal(row, first[name])

    def test_without_commands_it_stops_itself_until_the_caller_has_seen_it(
        self, robot: Driver
    ) -> None:
        watchdog_s = robot.describe().watchdog_s
        if watchdog_s is None:
            pytest.skip("it has no watchdog")
        commands = staying(robot)
        robot.write(commands)
        time.sleep(1.2 * watchdog_s + 0.05)
        with pytest.raises(DriverError, match="command"):
            robot.write(commands)
        robot.stop(robot.describe().safe_actions[0])
        robot.write(commands)


def staying(driver: Driver) -> dict[str, NDArray[np.float64]]:
    """Return commands by which a robot stays where it is, as far as commands can do that."""
    described, values = driver.describe(), driver.read().values
    found = {}
    for name, signal in described.commands.items():
        row = np.zeros(len(signal.names))
        if name == "joint_position":
            read = described.sensors[name].names
            for column, joint in enumerate(signal.names):
                if joint in read:
                    row[column] = values[name][read.index(joint)]
        lower = -np.inf if signal.lower is None else np.array(signal.lower)
        upper = np.inf if signal.upper is None else np.array(signal.upper)
        found[name] = np.clip(row, lower, upper)
    return found

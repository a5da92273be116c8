"""A robot behind rosbridge, which a stand-in plays: without a network, and with roslibpy's own."""

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support import rosbridge_server

from rlzoo_plus.drivers import rosbridge_driver
from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing import DriverContract

JOINTS = {"joints": ["hip", "knee"]}


@pytest.fixture
def ros(monkeypatch):
    """Give the driver a roslibpy without a network, and a new robot."""
    monkeypatch.setattr(rosbridge_driver, "import_user_module", lambda *_: rosbridge_server)
    monkeypatch.setattr(rosbridge_server.Ros, "robot", rosbridge_server.Robot())
    monkeypatch.setattr(rosbridge_server.Topic, "callbacks", [])
    return rosbridge_server.Ros


def connected(**options):
    driver = make_driver("rosbridge", {**JOINTS, "timeout_s": 0.2, **options})
    driver.connect()
    return driver


def test_joints_are_found_by_their_names(ros):
    driver = connected()
    assert driver.read().values["joint_position"].tolist() == [0.25, -1.0]
    # Of what the states have no numbers for, there is no sensor.
    assert set(driver.describe().sensors) == {"joint_position", "joint_velocity"}


def test_a_position_is_published_as_a_trajectory_within_the_limits(ros):
    driver = connected(lower=[-1, -1], upper=[1, 1], rate_hz=20)
    driver.write({"joint_position": np.array([0.5, 3.0])})
    ((topic, message),) = ros.robot.published
    assert topic == "/joint_trajectory_controller/joint_trajectory"
    point = {"positions": [0.5, 1.0], "time_from_start": {"sec": 0, "nanosec": 50_000_000}}
    assert message == {"joint_names": ["hip", "knee"], "points": [point]}
    assert driver.read().values["joint_position"].tolist() == [0.5, 1.0]


def test_torques_are_published_as_an_array_and_stop_at_zero(ros):
    driver = connected(command="joint_torque", message="array", commands="/effort", ros=1)
    driver.write({"joint_torque": np.array([2.0, 3.0])})
    driver.stop("stop")
    data = [(topic, message["data"]) for topic, message in ros.robot.published]
    assert data == [("/effort", [2.0, 3.0]), ("/effort", [0.0, 0.0])]


def test_letting_go_holds_the_present_position(ros):
    driver = connected()
    driver.disconnect()
    (_, message) = ros.robot.published[-1]
    assert message["points"][0]["positions"] == [0.25, -1.0]


def test_a_broken_connection_is_named(ros):
    driver = connected()
    driver._client.is_connected = False
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:9090: the connection broke"):
        driver.read()
    driver.disconnect()


@pytest.mark.parametrize(
    "message",
    [{}, {"name": 3}, {"name": ["hip"], "position": ["x"], "velocity": [], "effort": []}],
)
def test_joint_states_that_make_no_sense_are_one_error(ros, message):
    driver = connected()
    driver._keep(message)
    with pytest.raises(DriverError):
        driver.read()


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"states": "/other"}, DriverError, r"nothing on /other for 0\.2 s"),
        ({"joints": ["hip", "ankle"]}, ConfigError, r"no ankle\. It has: knee, passive, hip"),
        ({"lower": [0]}, ConfigError, "lower has 1 numbers for 2 joints"),
        ({"command": "joint_torque"}, ConfigError, "needs message=array"),
    ],
)
def test_a_mistake_is_named_before_anything_moves(ros, options, error, what):
    with pytest.raises(error, match=what):
        connected(**options)
    assert ros.robot.published == []


def test_a_server_that_is_not_there_is_named(ros, monkeypatch):
    monkeypatch.setattr(ros, "is_there", False)
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:9090 cannot be reached"):
        connected()


@pytest.mark.skipif(find_spec("roslibpy") is not None, reason="roslibpy is installed")
def test_without_roslibpy_the_extra_is_named():
    with pytest.raises(ConfigError, match=r"no module roslibpy\. Install it: .*rlzoo-plus\[ros\]"):
        make_driver("rosbridge", JOINTS)


@pytest.mark.skipif(find_spec("roslibpy") is None, reason="roslibpy is not installed")
class TestOverAWebsocket(DriverContract):
    resets = False

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls):
        server = subprocess.Popen(
            [sys.executable, Path(rosbridge_server.__file__)], stdout=subprocess.PIPE, text=True
        )
        driver = make_driver("rosbridge", {**JOINTS, "port": int(server.stdout.readline())})
        yield driver
        driver.disconnect()
        server.kill()
        server.communicate()

    def test_it_goes_where_it_is_told(self, robot):
        robot.write({"joint_position": np.array([0.1 + 0.2, 1 / 3])})
        end_s = time.monotonic() + 30
        while robot.read().values["joint_position"].tolist() != [0.1 + 0.2, 1 / 3]:
            assert time.monotonic() < end_s
            time.sleep(0.005)

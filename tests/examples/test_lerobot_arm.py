"""The sketch of a LeRobot arm speaks in radians and joints, on a stand-in for LeRobot's class."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rlzoo_plus.drivers import robot_end


class FakeFollower:
    """What the sketch uses of SO101Follower: degrees by motor, and nothing else."""

    def __init__(self, config):
        self.config, self.is_connected, self.sent = config, False, {}
        self.degrees = {f"{name}.pos": 10.0 * n for n, name in enumerate(MOTORS)}
        self.bus = SimpleNamespace(disable_torque=lambda: self.sent.update(torque=False))

    def connect(self, calibrate):
        assert not calibrate
        self.is_connected = True

    def get_observation(self):
        return {**self.degrees, "front": np.zeros((2, 2, 3))}

    def send_action(self, action):
        self.sent.update(action)


MOTORS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")


@pytest.fixture
def arm(monkeypatch):
    module = ModuleType("lerobot.robots.so_follower")
    module.SO101Follower, module.SO101FollowerConfig = FakeFollower, SimpleNamespace
    for name in ("lerobot", "lerobot.robots"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "robot_end", robot_end)
    monkeypatch.delitem(sys.modules, "lerobot_arm", raising=False)
    sketch = importlib.import_module("lerobot_arm")
    monkeypatch.setitem(sketch.MOTORS, "elbow_flex", ("elbow_flex", -1.0, 0.5, -1.6, 1.5))
    monkeypatch.setattr(sketch, "SIGNS", [1.0, 1.0, -1.0, 1.0, 1.0])
    monkeypatch.setattr(sketch, "ZEROS", [0.0, 0.0, 0.5, 0.0, 0.0])
    yield sketch.Arm()
    del sys.modules["lerobot_arm"]


def test_degrees_of_motors_are_radians_of_joints_there_and_back(arm):
    end = robot_end.RobotEnd(arm)
    end.close()
    arm.connect()
    row = np.array(arm.read()["values"]["joint_position"])
    expected = np.add(np.radians([0, 10, -20, 30, 40]), [0, 0, 0.5, 0, 0])
    np.testing.assert_allclose(row, expected)
    arm.write({"joint_position": row})
    sent = {name: pytest.approx(at) for name, at in arm.arm.degrees.items() if "grip" not in name}
    assert arm.arm.sent == sent


def test_it_holds_where_it_is_and_stops_without_torque(arm):
    arm.connect()
    arm.stop("hold")
    assert arm.arm.sent["wrist_flex.pos"] == 30.0
    assert "gripper.pos" not in arm.arm.sent
    arm.stop("stop")
    assert arm.arm.sent["torque"] is False

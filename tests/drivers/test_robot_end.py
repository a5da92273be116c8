"""What comes from outside ends in an error or a closed connection, and in a robot that is safe."""

import json
import math
import socket
import struct
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.drivers.robot_end import MOST_BYTES, RobotEnd, packed, unpacked

NAMES = ["hip", "knee"]
HOSTILE = {
    "garbage": b"GET / HTTP/1.1\r\nHost: robot\r\n\r\n",
    "a huge length": struct.pack(">I", 2**32 - 1),
    "no JSON": struct.pack(">I", 3) + b"{1}",
    "no object": packed([1, 2]),
    "a deep nest": struct.pack(">I", 200_000) + b"[" * 200_000,
    "a long number": struct.pack(">I", 100_000) + b"1" * 100_000,
    "bytes that are no text": struct.pack(">I", 4) + b"\xff\xfe\x00\x01",
    "an unknown call": packed({"id": 1, "call": "__init__"}),
    "no call": packed({"id": 1}),
}
BAD_COMMANDS = {
    "NaN": {"joint_position": [0.0, math.nan]},
    "infinity": {"joint_position": [math.inf, 0.0]},
    "a number less": {"joint_position": [0.0]},
    "a number more": {"joint_position": [0.0] * 3},
    "text": {"joint_position": ["0", "0"]},
    "no list": {"joint_position": 0.0},
    "a nest": {"joint_position": [[0.0, 0.0]]},
    "true": {"joint_position": [True, 0.0]},
    "another name": {"joint_velocity": [0.0, 0.0]},
    "nothing": {},
    "no mapping": [0.0, 0.0],
}


class Leg:
    """A robot that keeps what it was told."""

    def __init__(self):
        self.told, self.position, self.fails = [], np.array([0.1, 1 / 3]), set()

    def __getattr__(self, name):
        if name not in ("connect", "stop", "disconnect", "reset"):
            raise AttributeError(name)

        def call(*arguments):
            self.told.append((name, *arguments))
            if name in self.fails:
                raise RuntimeError(f"{name} has no power")

        return call

    def describe(self):
        signal = {"names": NAMES, "unit": "rad", "lower": [-1.0, -2.0], "upper": [1.0, 2.0]}
        return {
            "robot": "leg",
            "rate_hz": 50,
            "safe_actions": ["damp", "stop"],
            "sensors": {"joint_position": signal},
            "commands": {"joint_position": signal},
        }

    def read(self):
        return {"time_s": time.monotonic() - 5.0, "values": {"joint_position": self.position}}

    def write(self, commands):
        self.told.append(("write", commands["joint_position"].tolist()))
        if "write" in self.fails:
            raise RuntimeError("write has no power")

    @property
    def stops(self):
        return [one[1] for one in self.told if one[0] == "stop"]


@contextmanager
def serving(robot, **options):
    """Serve a robot from a thread of this process."""
    end, is_over = RobotEnd(robot, **{"watchdog_s": 30.0, **options}), threading.Event()

    def serve():
        while not is_over.is_set():
            end.turn(0.02)
        end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield end
    finally:
        is_over.set()
        thread.join()


@contextmanager
def connected(end, **options):
    driver = make_driver("socket", {"port": end.address[1], "timeout_s": 30, **options})
    driver.connect()
    try:
        yield driver
    finally:
        driver.disconnect()


def answer_to(end, *messages):
    """Send bytes, and return all replies until the connection is closed."""
    with socket.create_connection(end.address, 30) as sock:
        for message in messages:
            sock.sendall(message)
        found, replies = bytearray(), []
        while data := sock.recv(2**16):
            found += data
        while (reply := unpacked(found)) is not None:
            replies.append(reply)
        return replies


def wait_until(is_so):
    end_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_floats_arrive_as_they_are():
    robot = Leg()
    robot.position = np.array([5e-324, -0.0])
    sent = np.array([0.1 + 0.2, np.nextafter(1.0, 0.0)])
    with serving(robot) as end, connected(end) as driver:
        read = driver.read().values["joint_position"]
        driver.write({"joint_position": sent})
    assert read.tobytes() == robot.position.tobytes()
    assert ("write", sent.tolist()) in robot.told


def test_the_robot_keeps_its_limits_whatever_is_commanded():
    robot = Leg()
    with serving(robot) as end, connected(end) as driver:
        driver.write({"joint_position": np.array([-9.0, 1e300])})
    assert ("write", [-1.0, 2.0]) in robot.told


def test_the_time_of_a_reading_is_by_the_clock_of_who_reads():
    with serving(Leg()) as end, connected(end) as driver:
        before_s = time.monotonic()
        assert before_s - 5.0 <= driver.read().time_s <= time.monotonic() - 5.0


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("is_connected", [False, True])
def test_what_is_no_request_closes_the_connection(what, is_connected):
    robot = Leg()
    begin = [packed({"id": 0, "call": "connect", "protocol": 1})] if is_connected else []
    with serving(robot) as end:
        replies = answer_to(end, *begin, HOSTILE[what])
        assert len(replies) == len(begin) + 1
        assert "error" in replies[-1]
        # It serves others as before.
        with connected(end) as driver:
            driver.read()
    assert robot.stops == ["damp"] * (2 if is_connected else 1)


@pytest.mark.parametrize("what", BAD_COMMANDS)
def test_a_command_that_makes_no_sense_makes_the_robot_safe(what):
    robot = Leg()
    with serving(robot) as end, connected(end) as driver:
        driver.write({"joint_position": np.zeros(2)})
        with pytest.raises(DriverError):
            driver._call("write", commands=BAD_COMMANDS[what])
        assert robot.told[-1] == ("stop", "damp")
        with pytest.raises(DriverError, match="the robot stopped itself"):
            driver.write({"joint_position": np.zeros(2)})
        driver.stop("stop")
        driver.write({"joint_position": np.zeros(2)})


def test_a_request_in_pieces_is_understood():
    with serving(Leg()) as end, socket.create_connection(end.address, 30) as sock:
        for byte in packed({"id": 3, "call": "connect", "protocol": 1}):
            sock.sendall(bytes([byte]))
        assert unpacked(bytearray(sock.recv(2**16)))["id"] == 3


def test_requests_that_came_together_are_answered_in_turn():
    calls = ("connect", "read", "describe", "disconnect")
    requests = [packed({"id": n, "call": call, "protocol": 1}) for n, call in enumerate(calls)]
    with serving(Leg()) as end:
        assert [one["id"] for one in answer_to(end, b"".join(requests))] == [0, 1, 2, 3]


def test_another_protocol_is_refused():
    with serving(Leg()) as end:
        (reply,) = answer_to(end, packed({"id": 1, "call": "connect", "protocol": 2}))
        assert "protocol 2; this end has 1" in reply["error"]


def test_a_second_client_is_told_that_there_is_one():
    with serving(Leg()) as end, connected(end) as first:
        with pytest.raises(DriverError, match=r"busy: 127\.0\.0\.1 has this robot"):
            make_driver("socket", {"port": end.address[1]}).connect()
        first.read()


def test_one_that_says_nothing_makes_room():
    with serving(Leg()) as end, socket.create_connection(end.address), connected(end) as driver:
        driver.read()


def test_without_commands_the_robot_stops_itself_and_the_cause_is_told():
    robot = Leg()
    with serving(robot, watchdog_s=0.05) as end, connected(end) as driver:
        driver.write({"joint_position": np.zeros(2)})
        wait_until(lambda: robot.stops)
        # Once, and reading does not count as a command.
        time.sleep(0.1)
        assert robot.stops == ["damp"]
        with pytest.raises(DriverError, match=r"no command came for \d+ ms"):
            driver.write({"joint_position": np.zeros(2)})
        driver.stop("stop")
        time.sleep(0.1)
        assert robot.stops == ["damp", "stop"]


def test_a_client_that_let_the_robot_stop_itself_makes_room_and_the_next_is_told(caplog):
    robot = Leg()
    with serving(robot, watchdog_s=0.05) as end, connected(end) as silent:
        silent.write({"joint_position": np.zeros(2)})
        wait_until(lambda: robot.stops)
        with connected(end) as driver:
            assert driver.last_stop["action"] == "damp"
            assert "no command came" in driver.last_stop["cause"]
            assert "no command came" in caplog.text
            with pytest.raises(DriverError, match=r"closed|broke"):
                silent.read()


def test_a_broken_connection_makes_the_robot_safe_and_the_next_client_is_told():
    robot = Leg()
    with serving(robot) as end:
        driver = make_driver("socket", {"port": end.address[1], "safe_action": "stop"})
        driver.connect()
        driver.write({"joint_position": np.zeros(2)})
        driver._socket.close()
        wait_until(lambda: ("disconnect",) in robot.told)
        assert robot.told[-2:] == [("stop", "stop"), ("disconnect",)]
        with connected(end) as driver:
            assert "the connection broke" in driver.last_stop["cause"]
            assert driver.last_stop["action"] == "stop"


def test_a_robot_that_fails_is_an_error_and_does_its_safe_action():
    robot = Leg()
    robot.fails = {"write"}
    with serving(robot) as end, connected(end) as driver:
        with pytest.raises(DriverError, match="write has no power"):
            driver.write({"joint_position": np.zeros(2)})
        assert robot.stops == ["damp"]


def test_a_safe_action_that_fails_is_followed_by_the_next(monkeypatch):
    robot, usual = Leg(), Leg.__getattr__

    def without_damp(self, name):
        def stop(action):
            usual(self, "stop")(action)
            if action == "damp":
                raise RuntimeError("no damper")

        return stop if name == "stop" else usual(self, name)

    monkeypatch.setattr(Leg, "__getattr__", without_damp)
    with serving(robot) as end, connected(end) as driver:
        with pytest.raises(DriverError):
            driver._call("write", commands={})
        assert robot.stops == ["damp", "stop"]


def test_it_goes_on_when_its_terminal_is_closed(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        flush = write

    robot = Leg()
    with serving(robot) as end:
        monkeypatch.setattr("sys.stderr", Closed())
        answer_to(end, packed({"id": 0, "call": "connect", "protocol": 1}), HOSTILE["garbage"])
        with connected(end) as driver:
            driver.read()


def test_a_late_answer_closes_the_connection():
    robot = Leg()
    robot.read = lambda: time.sleep(0.3)
    with serving(robot) as end:
        driver = make_driver("socket", {"port": end.address[1], "timeout_s": 0.05})
        driver.connect()
        with pytest.raises(DriverError, match=r"no answer to read within 0\.05 s"):
            driver.read()
        with pytest.raises(DriverError, match="not connected"):
            driver.read()


def test_a_port_where_nobody_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DriverError, match=f"127.0.0.1:{port}: the connection was refused"):
        make_driver("socket", {"port": port}).connect()


@pytest.mark.parametrize(
    "reply",
    [
        b"garbage that is no length",
        packed({"id": 1, "result": 3}),
        packed({"id": 1, "result": {"description": {"robot": "x"}}}),
        packed({"id": 1, "result": {"description": {"sensors": [1]}}}),
    ],
)
def test_a_robot_that_answers_nonsense_is_one_error(reply):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            sock, _ = listener.accept()
            with sock:
                sock.recv(2**16)
                sock.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        driver = make_driver("socket", {"port": listener.getsockname()[1]})
        with pytest.raises(DriverError) as caught:
            driver.connect()
        assert "\n" not in str(caught.value)
        thread.join()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"rate_hz": 0}, "rate_hz=0"),
        ({"safe_actions": []}, "safe_actions"),
        ({"safe_actions": ["jump"]}, "jump"),
        ({"sensors": {"joint_position": {"names": ["a", "a"], "unit": "rad"}}}, "each once"),
        ({"commands": {"x": {"names": ["a"], "unit": "", "lower": [1, 2]}}}, "2 limits for 1"),
    ],
)
def test_a_robot_that_describes_itself_wrongly_is_refused_before_it_is_served(changed, what):
    robot = Leg()
    described = {**robot.describe(), **changed}
    robot.describe = lambda: described
    with pytest.raises(ValueError, match=what):
        RobotEnd(robot)


def test_a_message_that_is_too_long_is_not_sent():
    with pytest.raises(ValueError, match=f"{MOST_BYTES} at most"):
        packed({"text": "x" * MOST_BYTES})


def test_a_message_is_json_after_its_length():
    assert json.loads(packed({"call": "read"})[4:]) == {"call": "read"}

"""`run-robot` on a simulated robot in a process of its own, and what it says before it begins."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
from support.world_driver import FakeClock

import rlzoo_plus
from rlzoo_plus.commands import override, run_robot
from rlzoo_plus.control import start
from rlzoo_plus.control.commanding import Commander, parts_of
from rlzoo_plus.control.faults import Fault
from rlzoo_plus.control.pacing import Pacer
from rlzoo_plus.drivers.driver import Description, Signal
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cartpole_bullet", "cartpole_bullet_mujoco", "a1_walk_mujoco", "kuka_reach_mujoco"]
)
def test_episodes_on_the_simulated_clock_are_those_of_an_evaluation(name, tmp_path):
    out = tmp_path / "session"
    words = ["--driver", "sim", "--set", "clock=simulated", "--episodes", "2", "--out", str(out)]
    assert run_robot.main([f"trained/{name}", *words]) == 0
    played = json.loads((out / "report.json").read_text())["episodes"]
    record = rlzoo_plus.Run.open(f"trained/{name}").evaluate(2, n_envs=1)
    assert [one["return"] for one in played] == record["returns"]
    assert [one["length"] for one in played] == record["episode_lengths"]


@pytest.mark.slow
def test_a_robot_stops_when_its_loop_is_killed(tmp_path):
    env = rlzoo_plus.Run.open("trained/cartpole_bullet_mujoco").config.env
    robot = make_driver("sim", {"env": env.id, "kwargs": env.kwargs, "packages": env.packages})
    port, log = robot._start(), tmp_path / "session" / "log.csv"
    words = ["run-robot", "trained/cartpole_bullet_mujoco", "--driver", "socket"]
    words += ["--set", f"port={port}", "--minutes", "5", "--out", str(log.parent)]
    process = subprocess.Popen([sys.executable, "-m", "rlzoo_plus", *words])
    try:
        end = time.monotonic() + 120
        while not log.is_file() or len(log.read_text().splitlines()) < 20:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        probe = make_driver("socket", {"port": port})
        probe.connect()
        assert re.search("connection broke|no command came", probe.last_stop["cause"])
        probe.disconnect()
        # What was written before is whole.
        assert np.isfinite(np.loadtxt(log, delimiter=",", skiprows=1)).all()
    finally:
        process.kill()
        process.wait()
        robot._end()


def test_an_override_names_a_session_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no session in outputs/robot"):
        override.main(["stop"])
    with pytest.raises(ConfigError, match="no such session"):
        override.main(["elsewhere", "stop"])


def robot_of(**changes):
    facts = {"robot": "arm", "rate_hz": 50.0, "sensors": {}, "commands": {}, **changes}
    return Description(**facts)


def test_what_the_user_should_know_is_said_before_anything_moves():
    driver = SimpleNamespace(is_stepped=False)
    notes = start._notes(robot_of(), driver, 25.0, 0.02, ["latency"])
    assert [note.split(",")[0] for note in notes] == [
        "the policy was trained at 50 Hz",
        "latency of the training are left out: the robot has its own",
        "arm does not stop itself if this process dies: stay at its switch",
    ]
    assert start._notes(robot_of(watchdog_s=0.04), driver, 50.0, 0.02, []) == []
    (note,) = start._notes(robot_of(watchdog_s=0.5), driver, 50.0, 0.02, [])
    assert "0.5 s after this process dies" in note
    with pytest.raises(ConfigError, match="--hz 100 is more than arm takes, 50"):
        start._notes(robot_of(), driver, 100.0, 0.02, [])
    with pytest.raises(ConfigError, match=r"--safe hold: arm cannot do that. Choose: stop"):
        start._safe_action("hold", robot_of(safe_actions=("stop",)))


def test_the_simulated_robot_is_by_default_that_of_the_policy():
    env = load(["env=cartpole_bullet", "env.kwargs.engine=mujoco"]).env
    given = start._options("sim", ["clock=simulated"], env)
    assert given[0] == 'env="robots/CartPoleBalance-v0"'
    assert given[-1] == "clock=simulated"
    assert make_driver("sim", given).is_stepped
    assert start._options("sim", ["env=x"], env) == ["env=x"]
    assert start._options("socket", ["port=1"], env) == ["port=1"]


def test_deadlines_stay_on_one_grid():
    clock = FakeClock()
    pacer = Pacer(clock, 0.02, 2)
    pacer.wait()
    times = []
    for taken_s in (0.005, 0.025, 0.001, 0.0):
        clock.time_s += taken_s
        pacer.wait()
        times.append(round(clock.time_s - 100.0, 6))
    assert times == [0.02, 0.045, 0.06, 0.08]
    assert pacer.missed == 1
    clock.time_s += 0.025
    pacer.wait()
    clock.time_s += 0.021
    with pytest.raises(Fault, match="2 in a row"):
        pacer.wait()


def test_every_drive_of_the_robots_becomes_commands_of_joints():
    # A gripper, inverse kinematics, mixed wheels, and wheels with steering.
    for name, kinds in (
        ("franka_lift", ["joint_position"]),
        ("franka_push", ["joint_position"]),
        ("husky_drive", ["joint_velocity"]),
        ("racecar_drive", ["joint_position", "joint_velocity"]),
        ("a1_walk", ["joint_position"]),
        ("double_pendulum", ["joint_torque"]),
    ):
        with closing(make_env(load([f"env={name}", "env.kwargs.engine=mujoco"]).env)) as made:
            env = made.unwrapped
            env.reset(seed=0)
            drive = env.robot.drive
            motors = {}
            for kind in kinds:
                driven = [part.joints for part in parts_of(drive) if part.kind == kind]
                joints = [joint for joints in driven for joint in joints]
                unit = ",".join(_unit(kind, joint) for joint in joints)
                # Backwards, since order does not count.
                motors[kind] = Signal(tuple(joint.name for joint in joints[::-1]), unit)
            read = Signal(tuple(joint.name for joint in env.robot.joints), "rad")
            robot = robot_of(commands=motors, sensors={"joint_position": read})
            commander = Commander(drive, robot)
            row = drive.row_of_targets(0.3 * np.ones(drive.n_actions), env.state)
            found = commander.commands(row)
            assert sorted(found) == sorted(kinds)
            assert all(np.isfinite(values).all() for values in found.values())
            n_commanded = sum(len(part.joints) for part in commander.parts)
            assert n_commanded == sum(len(values) for values in found.values())


def _unit(kind, joint):
    hinge, slider = {
        "joint_position": ("rad", "m"),
        "joint_velocity": ("rad/s", "m/s"),
        "joint_torque": ("N m", "N"),
    }[kind]
    return slider if joint.slides else hinge


def test_tasks_that_no_driver_can_serve_are_refused_by_name():
    drive = SimpleNamespace(motors=SimpleNamespace(joints=[]))
    with pytest.raises(ConfigError, match="actions of a SimpleNamespace are no commands"):
        Commander(drive, robot_of())

"""A simulated robot behind a driver does what its environment does, and what goes wrong with it."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import robots  # noqa: F401
from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.drivers.robot_end import CloseConnection
from rlzoo_plus.drivers.sim_driver import SimSettings
from rlzoo_plus.drivers.sim_robot import SimRobot
from rlzoo_plus.errors import ConfigError

ENGINES = ("mujoco", "bullet")
CARTPOLE, A1, KUKA = "robots/CartPoleBalance-v0", "robots/A1Walk-v1", "robots/KukaReach-v1"


def sim(env_id, engine="mujoco", clock="simulated", **options):
    """Return the inside of a simulated robot's process."""
    kwargs = {"engine": engine}
    return SimRobot(SimSettings(env=env_id, kwargs=kwargs, clock=clock, **options))


def row_of(values):
    return [float(number) for row in values.values() for number in row]


@contextmanager
def environment(env_id, engine):
    """Give an environment, and the list that gets what each of its steps commands the motors."""
    env = gym.make(env_id, engine=engine).unwrapped
    drive, commanded = env.robot.drive, []
    while hasattr(drive, "wrapped"):
        drive = drive.wrapped

    def recorded(original, row, *rest):
        commanded.append(list(row))
        return original(row, *rest)

    drive._drive = partial(recorded, drive._drive)
    try:
        yield env, commanded
    finally:
        env.close()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("env_id", [CARTPOLE, A1, KUKA])
def test_on_the_simulated_clock_it_does_bit_for_bit_what_its_environment_does(env_id, engine):
    robot = sim(env_id, engine)
    (signal,) = robot.describe()["commands"]
    rng = np.random.default_rng(0)
    with environment(env_id, engine) as (env, commanded):
        for seed, n_steps in ((5, 30), (5, 12), (None, 20)):
            env.reset(seed=seed)
            robot.reset(seed)
            assert row_of(robot.read()["values"]) == env.readings
            for _ in range(n_steps):
                del commanded[:]
                env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
                robot.write({signal: np.array(commanded[0])})
                assert row_of(robot.read()["values"]) == env.readings
            # What stops the robot leaves no trace in the next episode.
            for action in robot.describe()["safe_actions"]:
                robot.stop(action)
                robot._step()


@pytest.mark.parametrize("engine", ENGINES)
def test_it_does_the_same_in_its_own_process(engine):
    options = {"env": CARTPOLE, "kwargs": {"engine": engine}, "clock": "simulated"}
    driver = make_driver("sim", options)
    driver.connect()
    try:
        with environment(CARTPOLE, engine) as (env, commanded):
            env.reset(seed=2)
            driver.reset(2)
            for action in np.linspace(-1, 1, 15, dtype=np.float32):
                env.step(np.array([action]))
                driver.write({"joint_torque": np.array(commanded[-1])})
                assert row_of(driver.read().values) == env.readings
    finally:
        driver.disconnect()


def positions(robot):
    return np.array(robot.read()["values"]["joint_position"])


def raised(robot):
    """Return the position of the first of A1's joints, and a command that moves it."""
    command = positions(robot)
    command[0] += 0.3
    return {"joint_position": command}


def moved(robot, n_steps):
    """Return how far the first joint is after each of some steps of the same command."""
    command, start = raised(robot), positions(robot)[0]
    found = []
    for _ in range(n_steps):
        robot.write(command)
        found.append(float(positions(robot)[0] - start))
    return found


def test_a_latency_delays_what_is_commanded():
    prompt, late = (moved(sim(A1, latency_s=s), 6) for s in (0.0, 0.04))
    assert prompt[1] > 0.05
    # The first two steps hold where the episode starts.
    assert max(late[:2]) < 0.02
    assert late[3] > 0.05


def test_jitter_is_drawn_from_the_seed():
    a, same, other = (moved(sim(A1, jitter_s=0.1, seed=n), 8) for n in (3, 3, 4))
    assert a == same
    assert a != other


def test_a_stuck_motor_stays_where_it_is():
    robot = sim(A1, stuck=["FR_hip_joint"])
    assert max(map(abs, moved(robot, 6))) < 0.02
    assert max(moved(sim(A1), 6)) > 0.1


def test_a_stuck_motor_that_torques_drive_has_none():
    robot = sim(CARTPOLE, stuck=["slider_to_cart"], seed=1)
    free = sim(CARTPOLE, seed=1)
    for one, force in ((robot, 10.0), (free, 0.0)):
        for _ in range(5):
            one.write({"joint_torque": np.array([force])})
    assert positions(robot).tolist() == positions(free).tolist()


def test_an_unknown_motor_cannot_be_stuck():
    with pytest.raises(ConfigError, match=r"unknown motor in stuck 'slider'.*slider_to_cart"):
        sim(CARTPOLE, stuck=["slider"])


def test_dropped_reads_give_the_old_reading_with_its_time():
    robot = sim(CARTPOLE, dropped=0.5)
    readings = []
    for _ in range(40):
        robot.write({"joint_torque": np.array([5.0])})
        readings.append(robot.read())
    old = sum(a == b for a, b in pairwise(readings))
    assert 8 < old < 32


def write_for(robot, duration_s):
    for _ in range(round(duration_s * robot.describe()["rate_hz"])):
        robot.write({"joint_torque": np.array([1.0])})


def test_a_sensor_turns_to_nan():
    robot = sim(CARTPOLE, nan_after_s=0.2)
    robot.connect()
    write_for(robot, 0.1)
    assert np.isfinite(positions(robot)).all()
    write_for(robot, 0.1)
    assert np.isnan(positions(robot)).all()
    assert np.isfinite(robot.read()["values"]["joint_velocity"]).all()


def test_a_reading_stands_still():
    robot = sim(CARTPOLE, stale_after_s=0.1)
    robot.connect()
    write_for(robot, 0.1)
    last = robot.read()
    write_for(robot, 0.1)
    assert robot.read() == last
    robot.connect()
    assert robot.read()["time_s"] > last["time_s"]


def test_the_connection_breaks():
    robot = sim(CARTPOLE, disconnect_after_s=0.1)
    robot.connect()
    with pytest.raises(CloseConnection):
        write_for(robot, 0.2)


@pytest.mark.parametrize("engine", ENGINES)
def test_holding_stays_damping_slows_and_stopping_lets_fall(engine):
    falls = {}
    for action in ("hold", "damp", "stop"):
        robot = sim(KUKA, engine)
        robot.reset(0)
        before = positions(robot)
        robot.stop(action)
        for _ in range(20):
            robot._step()
        falls[action] = float(np.abs(positions(robot) - before).max())
    assert falls["hold"] < 0.01
    assert falls["hold"] <= falls["damp"] < 0.5 * falls["stop"]


def test_on_the_real_clock_it_moves_without_the_client_from_the_first_command_on():
    robot = sim(CARTPOLE, clock="real")
    start = positions(robot).tolist()
    assert robot.tick() > 0.1
    assert positions(robot).tolist() == start
    robot.write({"joint_torque": np.array([5.0])})
    assert 0 < robot.tick() < 0.02
    for _ in range(4):
        time.sleep(robot.tick())
        robot.tick()
    assert positions(robot).tolist() != start


@pytest.mark.parametrize(
    ("env_id", "kwargs", "what"),
    [
        (CARTPOLE, {"engin": 1}, "engin"),
        ("CartPole-v1", {}, "no environment of one robot"),
    ],
)
def test_an_environment_without_such_a_robot_is_refused(env_id, kwargs, what):
    with pytest.raises(ConfigError, match=what):
        SimRobot(SimSettings(env=env_id, kwargs=kwargs))


def test_a_mistake_that_its_process_finds_is_one_line():
    driver = make_driver("sim", {"env": "robots/CartPoleBalanc-v0"})
    with pytest.raises(ConfigError, match="CartPoleBalance") as caught:
        driver.connect()
    assert "\n" not in str(caught.value)
    with pytest.raises(DriverError, match="not connected"):
        driver.read()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.slow
def test_its_process_ends_with_the_one_that_started_it():
    code = f"""
from rlzoo_plus.drivers.factory import make_driver
driver = make_driver("sim", {{"env": "{CARTPOLE}"}})
driver.connect()
print(driver._process.pid, flush=True)
driver._process.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
    end_s = time.monotonic() + 60
    while is_running(child):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def is_running(pid):
    """Return whether a process runs; one that nobody has waited for is no more."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

"""Every driver keeps the contract: simulated on both engines, and in the robot's own process."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.testing import DriverContract

ROOT = Path(__file__).resolve().parents[2]


def served(*options):
    """Start examples/own_driver.py as on a robot; return its process and its port."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "own_driver.py", "--port", "0", *options],
        env={"PYTHONPATH": str(ROOT / "rlzoo_plus" / "drivers")},
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stderr.readline()
    assert "serving leg at 127.0.0.1:" in line, line + process.stderr.read()
    return process, int(line.partition("127.0.0.1:")[2].split(";")[0])


class TestSocket(DriverContract):
    resets = False

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls):
        process, port = served("--watchdog-s", "1")
        driver = make_driver("socket", {"port": port, "timeout_s": 20})
        yield driver
        driver.disconnect()
        process.terminate()
        process.communicate()


class SimContract(DriverContract):
    engine, env, clock = "mujoco", "robots/CartPoleBalance-v0", "simulated"

    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls):
        options = {"env": cls.env, "kwargs": {"engine": cls.engine}, "clock": cls.clock}
        driver = make_driver("sim", {**options, "watchdog_s": 1.0, "timeout_s": 60.0})
        yield driver
        driver.disconnect()


class TestSimulatedOnMujoco(SimContract):
    clock = "real"


@pytest.mark.slow
class TestSimulatedOnBullet(SimContract):
    engine, env = "bullet", "robots/A1Walk-v1"


class TestRecorded(DriverContract):
    @pytest.fixture(scope="class")
    @classmethod
    def driver(cls, tmp_path_factory):
        file = tmp_path_factory.mktemp("log") / "log.csv"
        names = "time,position/hip,position/knee,velocity/hip,velocity/knee"
        file.write_text(f"{names}\n" + "".join(f"{0.02 * n},{n},0,0,0\n" for n in range(9)))
        return make_driver("recorded", {"log": file})

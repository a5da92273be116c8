"""A log stands in for the robot that wrote it."""

import numpy as np
import pytest

from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.errors import ConfigError

SESSION = """time,episode,position/hip,position/knee,velocity/hip,velocity/knee,base/position/x,\
reading/link_position/toe/x,policy/0,target/hip,command/joint_torque/knee,reward
10.0,0,0.1,0.2,1,2,5,7,0,0,0,1
10.02,0,0.3,0.4,3,4,6,8,0,0,0,1
"""


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(SESSION)
    return file


def test_the_rows_of_a_session_are_read_one_with_each_command(log):
    driver = make_driver("recorded", [f"log={log}"])
    driver.connect()
    described = driver.describe()
    assert described.rate_hz == pytest.approx(50)
    assert described.sensors["joint_position"].names == ("hip", "knee")
    assert described.sensors["link_position"].names == ("toe/x",)
    assert set(described.sensors) == {
        *("joint_position", "joint_velocity", "base_position", "link_position")
    }
    assert {name: one.names for name, one in described.commands.items()} == {
        "joint_torque": ("knee",)
    }
    first = driver.read()
    assert {name: row.tolist() for name, row in first.values.items()} == {
        "joint_position": [0.1, 0.2],
        "joint_velocity": [1.0, 2.0],
        "base_position": [5.0],
        "link_position": [7.0],
    }
    assert driver.read().time_s == first.time_s
    driver.write({"joint_torque": np.array([3.0])})
    assert driver.read().values["joint_position"].tolist() == [0.3, 0.4]
    with pytest.raises(DriverError, match="its 2 rows are over"):
        driver.write({"joint_torque": np.array([4.0])})
    assert [one["joint_torque"].tolist() for one in driver.written] == [[3.0], [4.0]]
    driver.reset()
    assert driver.read().values["joint_position"].tolist() == [0.1, 0.2]


def test_what_it_takes_is_said_where_the_log_has_no_commands(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("position/hip\n1\n2\n")
    with pytest.raises(ConfigError, match="Set rate_hz=50"):
        make_driver("recorded", {"log": file})
    driver = make_driver("recorded", [f"log={file}", "rate_hz=20", "commands=[joint_velocity]"])
    driver.connect()
    assert driver.describe().rate_hz == 20
    assert driver.describe().commands["joint_velocity"].names == ("hip",)


@pytest.mark.parametrize(
    ("text", "what"),
    [("action/0,reward\n1,2\n", "no columns position/JOINT"), ("", "is no CSV|names and no")],
)
def test_what_is_no_log_of_a_robot_is_refused(tmp_path, text, what):
    file = tmp_path / "other.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=what):
        make_driver("recorded", {"log": file})

"""A driver is made from a name and options, as other plugins are."""

import sys

import pytest

from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.drivers.sim_driver import SimDriver
from rlzoo_plus.errors import ConfigError

OWN = """
from rlzoo_plus.drivers.driver import Driver

class Mine(Driver):
    def __init__(self, port: int = 1):
        self.port = port
    connect = describe = read = write = stop = disconnect = None

class Other:
    pass
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_arm_driver.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_arm_driver", None)


def test_options_are_yaml_and_dots_lead_into_mappings():
    driver = make_driver(
        "sim", ["env=robots/A1Walk-v1", "kwargs.engine=mujoco", "stuck=[a,b]", "latency_s=1e-2"]
    )
    assert isinstance(driver, SimDriver)
    settings = driver._of_robot
    assert (settings.kwargs, settings.stuck) == ({"engine": "mujoco"}, ["a", "b"])
    assert settings.latency_s == 0.01


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        ("simm", [], r"unknown driver 'simm'\. Did you mean 'sim'\?"),
        ("sim", ["env=x", "latency=1"], r"'latency'\. Did you mean 'latency_s'\?"),
        ("sim", ["env=x", "latency_s=-1"], "latency_s: .*greater than or equal to 0"),
        ("sim", [], "env: Field required"),
        ("sim", ["env"], "'env' is no option of a driver. Write key=value"),
        ("socket", ["port=99999"], "port: .*65535"),
        ("own_arm_driver.Other", [], "is not a Driver"),
        ("own_arm_driver.Mine", ["speed=1"], "speed"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(name, options, what, own_module):
    with pytest.raises(ConfigError, match=what) as caught:
        make_driver(name, options)
    assert "\n" not in str(caught.value)


def test_an_own_class_gets_its_options_by_name(own_module):
    assert make_driver("own_arm_driver.Mine", ["port=7"]).port == 7

"""Entries of a robot's sensors and commands match by name, never by order."""

import pytest

from rlzoo_plus.drivers.driver import columns_by_name
from rlzoo_plus.errors import ConfigError


def test_permuted_names_are_found_where_they_are():
    assert columns_by_name("joints", ("hip", "knee"), ("knee", "ankle", "hip")) == [2, 0]


def test_a_missing_name_is_told_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"no ankle\. It has: hip, knee"):
        columns_by_name("joints", ("hip", "ankle"), ("hip", "knee"))


@pytest.mark.parametrize(
    ("wanted", "given", "side"),
    [
        (("hip",), ("hip", "hip"), "the robot's"),
        (("hip", "hip"), ("hip",), "needed"),
    ],
)
def test_a_doubled_name_is_refused(wanted, given, side):
    with pytest.raises(ConfigError, match=f"hip occurs twice among {side} names"):
        columns_by_name("joints", wanted, given)

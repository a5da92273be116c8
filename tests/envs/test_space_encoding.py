"""Spaces survive the way through JSON unchanged."""

import json
from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from rlzoo_plus.envs.spaces import decode_space, encode_space

SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "box_scalar": spaces.Box(-1, 1, (), np.float32),
    "box_unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "box_half_bounded": spaces.Box(0, np.inf, (2, 2), np.float64),
    "box_per_dimension": spaces.Box(
        np.array([-1.1, -np.inf, 0]), np.array([0.3, 2, np.inf]), dtype=np.float32
    ),
    "box_double": spaces.Box(-1 / 3, 2 / 3, (2,), np.float64),
    "box_int32": spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
    "box_int64": spaces.Box(-(2**62) - 1, 2**62 + 1, (2,), np.int64),
    "box_int64_widest": spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "discrete": spaces.Discrete(4),
    "discrete_start": spaces.Discrete(4, start=-2),
    "multi_discrete": spaces.MultiDiscrete([3, 2, 5]),
    "multi_discrete_start": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "multi_discrete_table": spaces.MultiDiscrete([[3, 2], [4, 5]]),
    "multi_binary": spaces.MultiBinary(4),
    "multi_binary_table": spaces.MultiBinary([2, 3]),
    "dict": spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)}),
    "dict_nested": spaces.Dict({"a": spaces.Dict({"b": spaces.MultiBinary(2)})}),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_space_comes_back_from_json_as_it_was(name):
    space = SPACES[name]
    back = decode_space(json.loads(json.dumps(encode_space(space), allow_nan=False)))
    assert back == space
    assert back.dtype == space.dtype


def test_keys_of_a_dictionary_keep_their_order():
    # Networks join the parts in this order: another one would shuffle their inputs.
    parts = OrderedDict([("zeta", spaces.Discrete(2)), ("alpha", spaces.Discrete(3))])
    back = decode_space(json.loads(json.dumps(encode_space(spaces.Dict(parts)))))
    assert list(back.spaces) == ["zeta", "alpha"]


def test_a_space_that_policies_cannot_use_is_refused():
    with pytest.raises(TypeError, match="Text"):
        encode_space(spaces.Text(5))


def test_an_unknown_description_is_refused():
    with pytest.raises(ValueError, match="sphere"):
        decode_space({"type": "sphere"})

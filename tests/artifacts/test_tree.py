"""Nested data as JSON and tensors, without pickle."""

import json
import math
import struct

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors

from rlzoo_plus.artifacts.tree import STATE_FILE, TENSOR_FILE, pack, unpack


def round_trip(value):
    return unpack(pack(value))


def bits(value):
    return struct.pack(">d", value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**200,
        "",
        "Zürich \u2028 \n",
        "\ud800",
        [],
        {},
        (),
        [1, [2, [3]]],
        (1, (2,), [3, (4,)]),
        {"a": {"b": [1, {"c": (2, None)}]}},
        {1: "int", -2: "negative", 1.5: "float", None: "none", (1, 2): "tuple"},
        {True: "bool"},
        {"1": "text", 1: "number"},
        {"~float": "0x1p+0"},
        {"~array": "0"},
        {"~dict": [["a", 1]], "~tuple": 3, "~scalar": "<f8", "bytes": "00"},
        ["~array", {"x": ["~tuple"]}],
    ],
    ids=repr,
)
def test_plain_data_comes_back_equal_and_of_the_same_types(value):
    result = round_trip(value)
    assert result == value
    assert repr(result) == repr(value)


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 0.1, 1e-320, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.pi],
)
def test_a_float_comes_back_bit_for_bit(value):
    assert bits(round_trip(value)) == bits(value)


def test_not_a_number_comes_back_as_such():
    assert math.isnan(round_trip({"x": [math.nan]})["x"][0])


def test_ten_thousand_random_bit_patterns_come_back():
    patterns = np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64)
    array = patterns.view(np.float64)
    numbers = [float(x) for x in array if not np.isnan(x)]
    assert [bits(x) for x in round_trip(numbers)] == [bits(x) for x in numbers]
    assert round_trip(array).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(0.1),
        np.float64(0.1),
        np.float64("nan"),
        np.float16(0.1),
        np.int8(-3),
        np.int64(2**62),
        np.uint64(2**63),
        np.bool_(True),
    ],
    ids=lambda s: f"{s.dtype} {s}",
)
def test_a_numpy_scalar_keeps_its_type_and_bits(scalar):
    result = round_trip({"x": scalar})["x"]
    assert type(result) is type(scalar)
    assert result.tobytes() == scalar.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(3, dtype=np.float64),
        np.array([np.nan, np.inf, -np.inf, -0.0]),
        np.arange(3, dtype=np.float16),
        np.arange(3, dtype=np.uint8),
        np.arange(3, dtype=np.uint64),
        np.arange(-3, 3, dtype=np.int32),
        np.array([True, False]),
        np.array(3.5),
        np.zeros(0),
        np.zeros((0, 3), dtype=np.float32),
        np.zeros((2, 0, 4), dtype=np.int64),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_an_array_keeps_type_shape_and_bits(array):
    result = round_trip(array)
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "view",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(12)[::-3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    ],
    ids=lambda a: f"{a.shape}",
)
def test_a_view_comes_back_with_its_values_in_place(view):
    assert np.array_equal(round_trip(view), view)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">u2"])
def test_an_array_of_foreign_byte_order_keeps_its_values(dtype):
    array = np.arange(-3, 5).astype(dtype)
    result = round_trip({"a": array})["a"]
    assert result.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
    assert np.array_equal(result, array)


def test_packing_leaves_the_original_alone():
    array = np.arange(3, dtype=">f8")
    before = array.tobytes()
    pack({"a": array})
    assert array.tobytes() == before


def test_arrays_that_come_back_are_writable_and_independent():
    shared = np.zeros(3)
    result = round_trip([shared, shared])
    result[0][0] = 1
    assert result[1][0] == 0
    assert shared[0] == 0


def test_a_deep_structure_with_everything_comes_back():
    rng = np.random.default_rng(3)
    value = {
        "rng": rng.bit_generator.state,
        "buffer": [{"pos": np.int64(4), "full": False, "data": rng.normal(size=(3, 2))}],
        ("a", 1): (None, [np.float32(0.5)], {"x": ()}),
    }
    result = round_trip(value)
    assert result["rng"] == value["rng"]
    assert np.array_equal(result["buffer"][0]["data"], value["buffer"][0]["data"])
    assert result[("a", 1)] == value[("a", 1)]


def test_a_random_generator_goes_on_from_a_state_that_was_stored():
    original, copy = np.random.default_rng(3), np.random.default_rng()
    copy.bit_generator.state = round_trip(original.bit_generator.state)
    assert copy.random() == original.random()


def test_the_same_value_gives_the_same_bytes():
    value = {"a": np.arange(4.0), "b": [1, 2.5, (3,)]}
    assert pack(value) == pack(value)


def test_the_files_are_json_and_safetensors():
    files = pack({"a": np.arange(3), "b": 1})
    assert set(files) == {STATE_FILE, TENSOR_FILE}
    json.loads(files[STATE_FILE])
    assert np.array_equal(load_tensors(files[TENSOR_FILE])["0"], np.arange(3))


class Thing:
    def __reduce__(self):
        raise AssertionError("pickled")


@pytest.mark.parametrize(
    "value",
    [
        Thing(),
        {"a": [Thing()]},
        {1, 2},
        b"bytes",
        lambda: None,
        1 + 2j,
        np.array([Thing()]),
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(2, dtype=[("a", "i4"), ("b", "O")]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.ones(2, dtype=np.complex128),
    ],
    ids=lambda v: type(v).__name__ + str(getattr(v, "dtype", "")),
)
def test_what_cannot_be_stored_without_code_is_refused(value):
    with pytest.raises(TypeError):
        pack({"key": value})


def test_a_refusal_names_where_the_value_sits():
    with pytest.raises(TypeError, match=r"\.agent\.items\[1\]"):
        pack({"agent": {"items": [1, Thing()]}})


@pytest.mark.parametrize(
    "value",
    [np.ma.masked_array([1, 2], [True, False]), np.zeros(1, dtype=[("a", "i4")])[0]],
    ids=["masked array", "record"],
)
def test_what_would_lose_a_part_is_refused(value):
    with pytest.raises(TypeError):
        pack(value)

"""Messages between interpreters carry plain data with arrays exactly, and nothing else."""

import io
import struct

import numpy as np
import pytest

from rlzoo_plus.interpreters import env_server

VALUE = {
    "numbers": [1, 2**70, -0.0, 0.1 + 0.2, True, None, "é\n"],
    "array": np.arange(6, dtype=">i2").reshape(2, 3)[:, ::2],
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.float32(0.1),
    "whole": np.int64(3),
    "pair": (np.bool_(True), (np.array(2.5), "x")),
    "texts": np.array(["a", "bc"]),
    "nested": {"image": np.full((2, 2, 3), 7, np.uint8), "": {}},
}


def same(left, right):
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    elif isinstance(left, (np.ndarray, np.generic)):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    else:
        assert left == right


def read(*messages):
    reader = env_server.Reader(io.BytesIO(b"".join(messages)))
    return [reader.receive() for _ in messages]


def test_two_messages_arrive_as_they_were_sent():
    first, second = read(env_server.pack(VALUE), env_server.pack([VALUE, 1]))
    same(first, VALUE)
    same(second, [VALUE, 1])
    # An environment may change what it is given.
    first["array"][0] = 5


def test_numbers_that_are_not_finite_arrive():
    (found,) = read(env_server.pack([float("nan"), float("-inf"), np.float64("nan")]))
    assert [repr(float(number)) for number in found] == ["nan", "-inf", "nan"]


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {"~array": 1}, {1, 2}, np.array([object()]), b"", [1, [print]]]
)
def test_what_is_no_plain_data_is_refused(value):
    with pytest.raises(env_server.UnsendableError):
        env_server.pack(value)


def test_an_info_loses_what_cannot_be_sent():
    info = {"cost": 1.5, "thing": object(), "deep": {"call": print}, 3: np.zeros(2)}
    assert list(env_server.sendable(info)) == ["cost", "3"]


@pytest.mark.parametrize("code", ["|O8", "<M8[s]", "|V8"])
def test_an_array_of_another_kind_is_not_made(code):
    text = f'{{"~array":["{code}",[1]]}}'.encode()
    with pytest.raises((ValueError, TypeError)):
        read(struct.pack("<II", len(text), 8) + text + bytes(8))


@pytest.mark.parametrize(
    "text",
    [
        *('{"~array":[5,[1]]}', '{"~array":["<f4"]}', '{"~array":["<f4",[9]]}', '{"~number":"<f8"'),
        *('{"~tuple":5}', "[" * 5000, "\xff"),
    ],
)
def test_a_malformed_message_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        read(struct.pack("<II", len(text), 4) + text.encode("latin-1") + bytes(4))


def test_a_message_is_a_gib_at_most(monkeypatch):
    with pytest.raises(ValueError, match="a message of 1073741825 bytes"):
        read(struct.pack("<II", 1, 2**30) + b"1")
    monkeypatch.setattr(env_server, "_MOST_BYTES", 100)
    with pytest.raises(env_server.UnsendableError, match="bytes is too large"):
        env_server.pack(np.zeros(100))


def test_a_message_that_is_cut_is_the_end():
    message = env_server.pack(VALUE)
    for length in (0, 5, 8, len(message) - 1):
        with pytest.raises(EOFError):
            read(message[:length])

"""Which attributes are plain data, and how they are copied and put back in their own types."""

from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
import torch
from support.training import assert_same_tree

from rlzoo_plus.artifacts.tree import pack, unpack
from rlzoo_plus.envs.plain_state import (
    fitted,
    in_layout,
    is_plain,
    layout_of,
    tensors_of,
    to_plain,
)


class Pair(NamedTuple):
    """Two parts, as recurrent policies keep their states."""

    left: object
    right: object


PLAIN = {
    "none": None,
    "switch": True,
    "number": 3,
    "fraction": 0.1,
    "infinity": float("inf"),
    "text": "lr",
    "array": np.arange(6.0).reshape(2, 3),
    "array of switches": np.array([True, False]),
    "scalar": np.float32(0.1),
    "tensor": torch.arange(3),
    "tuple": (1, (np.zeros(2), torch.zeros(2))),
    "list": [1, [2.0, "three"]],
    "queue": deque([{"r": 1.0, "l": 8}], maxlen=4),
    "dictionary": {"a": np.zeros(2), 3: {"b": None}},
    "named tuple": Pair((torch.zeros(1), torch.ones(1)), (torch.zeros(2),)),
    "empty": [],
}
LOOP: list = []
LOOP.append(LOOP)
NOT_PLAIN = {
    "function": len,
    "object": object(),
    "array of objects": np.array([{}]),
    "array of texts": np.array(["a"]),
    "array of complex numbers": np.array([1j]),
    "set": {1},
    "bytes": b"a",
    "parameter": torch.nn.Parameter(torch.zeros(1)),
    "list of tensors": [torch.zeros(1)],
    "dictionary of tensors": {"weight": torch.zeros(1)},
    "object in a list": [1, [object()]],
    "dictionary with keys of tuples": {(1, 2): 3},
    "module": torch.nn.Linear(1, 1),
    "something that holds itself": LOOP,
}


@pytest.mark.parametrize("kind", [*PLAIN, *NOT_PLAIN])
def test_what_is_plain_is_known(kind):
    assert is_plain({**PLAIN, **NOT_PLAIN}[kind]) == (kind in PLAIN)


@pytest.mark.parametrize("kind", list(PLAIN))
def test_plain_data_can_be_written_and_comes_back_in_its_own_types(kind):
    value = PLAIN[kind]
    back = fitted(value, unpack(pack(to_plain(value))), "it")
    assert_same_tree(_comparable(back), _comparable(value))


@pytest.mark.parametrize(("before", "value"), [(None, [1, 2]), ((None,), (3,)), ({}, {"new": 1})])
def test_what_was_nothing_may_become_something(before, value):
    assert fitted(before, value, "it") == value


def test_a_copy_shares_no_memory():
    value = {
        "array": np.zeros(2),
        "tensor": (torch.zeros(2),),
        "list": [[1]],
        "view": np.zeros(4)[:2],
    }
    copy = to_plain(value)
    value["array"][:], value["tensor"][0][:], value["view"][:] = 1, 1, 1
    value["list"][0].append(2)
    assert copy["array"].sum() == copy["tensor"][0].sum() == copy["view"].sum() == 0
    assert copy["list"] == [[1]]


def test_a_tensor_put_back_shares_no_memory_with_the_data():
    data = np.zeros(2)
    tensor = fitted(torch.ones(2, dtype=torch.float64), data, "it")
    data[:] = 5
    assert tensor.tolist() == [0.0, 0.0]


def test_arrays_inside_become_tensors():
    made = tensors_of({"a": np.ones(2, np.float32), "b": [(np.zeros(()), 3, None)]})
    assert torch.equal(made["a"], torch.ones(2))
    assert made["b"][0][0].shape == ()
    assert made["b"][0][1:] == (3, None)


def test_an_optimizer_goes_on_after_a_file():
    def step(network, optimizer):
        optimizer.zero_grad()
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    one, two = (torch.optim.Adam(n.parameters(), amsgrad=True) for n in (first, second))
    step(first, one)
    saved = unpack(pack(to_plain({"n": first.state_dict(), "o": one.state_dict()})))
    second.load_state_dict(tensors_of(saved["n"]))
    two.load_state_dict(tensors_of(saved["o"]))
    for _ in range(3):
        step(first, one)
        step(second, two)
    assert torch.equal(first.weight, second.weight)


def _comparable(value):
    """Return nested data with tensors as arrays and queues as lists, each marked by its type."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.numpy())
    if isinstance(value, deque):
        return ("queue", value.maxlen, [_comparable(v) for v in value])
    if isinstance(value, dict):
        return {k: _comparable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_comparable(v) for v in value])
    return value


def test_a_transposed_picture_keeps_its_order_in_memory():
    pictures = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
    copied = to_plain({"picture": pictures, "flat": np.zeros((2, 3))})
    layout = layout_of({"picture": pictures, "flat": np.zeros((2, 3))})
    assert layout == {"picture": [0, 2, 3, 1]}
    back = in_layout({key: np.ascontiguousarray(value) for key, value in copied.items()}, layout)
    assert back["picture"].strides == pictures.strides
    assert np.array_equal(back["picture"], pictures)
    assert layout_of(back["flat"]) is None


def test_a_layout_of_other_axes_is_refused():
    with pytest.raises(ValueError, match="axes"):
        in_layout(np.zeros((2, 3)), [0, 0])

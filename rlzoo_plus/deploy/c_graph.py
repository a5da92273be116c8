"""An ONNX graph of fixed shapes, read into what its translation to C needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np

from rlzoo_plus.errors import ConfigError

# C's types of ONNX's, by the NumPy type. A bool is a byte of 0 or 1.
C_TYPES = {
    **{"float32": "float", "float64": "double", "bool": "uint8_t"},
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Array:
    """An array of the graph: an input, a constant, or what a node computes."""

    expression: str  # What names its first entry in C
    dtype: str  # Its NumPy type
    shape: tuple[int, ...]  # Its sizes
    value: np.ndarray | None = None  # Its entries, if they never change

    @property
    def c_type(self) -> str:
        """Its type in C."""
        return C_TYPES[self.dtype]

    @property
    def size(self) -> int:
        """Its number of entries."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How many entries lie between two neighbours along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


@dataclass(frozen=True)
class Node:
    """An operation: its arrays, None for an input that is left out, and its attributes."""

    kind: str
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    attributes: dict[str, Any]

    def axis(self, default: int, of: Array) -> int:
        """Return its attribute `axis`, counted from the front."""
        return int(self.attributes.get("axis", default)) % max(len(of.shape), 1)


@dataclass
class Graph:
    """The operations in their order, and the arrays that they share."""

    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: list[Array] = field(default_factory=list)
    computed: list[Array] = field(default_factory=list)  # Each needs memory


# These leave the entries as they are, in their order.
_ALIASES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"}


def read_graph(data: bytes, inputs: Mapping[str, str]) -> Graph:
    """Read an ONNX file whose shapes are all fixed.

    Args:
        data: The file, one that was just written.
        inputs: What names each of its inputs in C, also those that the network does not read.

    Raises:
        ConfigError: A size is not fixed, or a type has none in C.
    """
    onnx = import_module("onnx")
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(data), strict_mode=True)
    graph = Graph()
    known: dict[str, Any] = {"": None}
    described = {port.name: port for port in (*model.graph.input, *model.graph.value_info)}
    described |= {port.name: port for port in model.graph.output}
    for number, constant in enumerate(model.graph.initializer):
        value = onnx.numpy_helper.to_array(constant)
        array = Array(f"constant_{number}", str(value.dtype), value.shape, value)
        known[constant.name] = array
        graph.constants.append(array)
    for name, expression in inputs.items():
        if name in described:
            known[name] = _described(onnx, described[name], expression)
            graph.inputs.append(known[name])
    numbers = count()
    for node in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            value = onnx.numpy_helper.to_array(attributes["value"])
            array = Array(f"value_{next(numbers)}", str(value.dtype), value.shape, value)
            known[node.output[0]] = array
            graph.constants.append(array)
            continue
        read = tuple(known[name] for name in node.input)
        outputs = []
        for name in node.output:
            if not name:
                continue
            made = _described(onnx, described[name], f"p->t{next(numbers)}")
            source = read[0]
            if node.op_type in _ALIASES and source is not None:
                made = Array(source.expression, source.dtype, made.shape, _as(source, made.shape))
            else:
                graph.computed.append(made)
            known[name] = made
            outputs.append(made)
        if node.op_type not in _ALIASES:
            graph.nodes.append(Node(node.op_type, read, tuple(outputs), attributes))
    graph.outputs = [known[port.name] for port in model.graph.output]
    return graph


def _as(source: Array, shape: tuple[int, ...]) -> np.ndarray | None:
    return None if source.value is None else source.value.reshape(shape)


def _described(onnx: Any, port: Any, expression: str) -> Array:
    tensor = port.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    sizes = [size.dim_value for size in tensor.shape.dim if size.HasField("dim_value")]
    if len(sizes) < len(tensor.shape.dim) or dtype not in C_TYPES:
        raise ConfigError(
            f"the policy cannot be written in C: {port.name} is of {dtype}, its fixed sizes are "
            f"{sizes}. Every size must be fixed, and the type known to C. Use --format onnx."
        )
    return Array(expression, dtype, tuple(sizes))

"""Loops over arrays of fixed shapes in C99, and the places of their entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlzoo_plus.deploy.c_graph import Array, Node
from rlzoo_plus.errors import ConfigError

Lines = list[str]


def loops(shape: Sequence[int], body: Lines) -> Lines:
    """Return a body within a loop for each axis; its variables are i0, i1, ..."""
    lines, depth = [], 0
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        index = f"i{axis}"
        lines.append("  " * depth + f"for (int {index} = 0; {index} < {size}; {index}++)")
        depth += 1
    if len(body) == 1:
        return [*lines, "  " * depth + body[0]]
    inner = ["{", *("  " + line for line in body), "}"]
    return [*lines, *("  " * depth + line for line in inner)]


def place_of(sizes: Sequence[int], strides: Sequence[int], start: int = 0) -> str:
    """Return the number of an entry, of the variables that `loops` has."""
    parts = [
        f"i{axis} * {stride}" if stride != 1 else f"i{axis}"
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
        if size > 1 and stride
    ]
    return " + ".join([*parts, str(start)] if start or not parts else parts)


def broadcast(array: Array, shape: Sequence[int]) -> str:
    """Return an entry of an array that stands for one of a larger shape."""
    missing = len(shape) - len(array.shape)
    strides = [
        0 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True)
    ]
    return f"{array.expression}[{place_of(shape, [0] * missing + strides)}]"


def each_entry(node: Node, formula: Callable[..., str]) -> Lines:
    """Return a loop that computes each entry of the output from those of the inputs."""
    (out,) = node.outputs
    inputs = [array for array in node.inputs if array is not None]
    if all(array.size in (1, out.size) for array in inputs):
        shape: tuple[int, ...] = (out.size,)
        read = [f"{a.expression}[{'i0' if a.size > 1 else 0}]" for a in inputs]
    else:
        shape, read = out.shape, [broadcast(array, out.shape) for array in inputs]
    strides = Array("", out.dtype, shape).strides
    return loops(shape, [f"{out.expression}[{place_of(shape, strides)}] = {formula(*read)};"])


def copy(
    out: Array, source: Array, shape: Sequence[int], to: tuple[Sequence[int], int],
    since: tuple[Sequence[int], int],
) -> Lines:  # fmt: skip
    """Return a loop that copies entries between places, each strides and a start."""
    there = f"{out.expression}[{place_of(shape, *to)}]"
    return loops(shape, [f"{there} = {source.expression}[{place_of(shape, *since)}];"])


def constant(node: Node, number: int) -> np.ndarray | None:
    """Return an input that says how to compute, which must never change."""
    array = node.inputs[number] if number < len(node.inputs) else None
    if array is None:
        return None
    if array.value is None:
        raise ConfigError(
            f"the policy cannot be written in C: an argument of {node.kind} is computed. Use "
            "--format onnx."
        )
    return np.asarray(array.value)


def present(array: Array | None) -> Array:
    """Return an input that must be there."""
    assert array is not None
    return array


def math_name(name: str, array: Array) -> str:
    """Return a function of math.h for the type of an array."""
    return name if array.dtype == "float64" else f"{name}f"


def literal(value: float, array: Array) -> str:
    """Return a number as C reads it, of the type of an array."""
    return f"{float(value)!r}" + ("" if array.dtype == "float64" else "f")

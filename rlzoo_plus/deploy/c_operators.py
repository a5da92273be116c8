"""The operators of ONNX as C99: loops over arrays of fixed shapes.

Written from the operators' specification, https://onnx.ai/onnx/operators (opset 20). Entries that
are not a number stay so, as in torch: a comparison with one never chooses the other.
"""

from __future__ import annotations

from collections.abc import Callable

from rlzoo_plus.deploy.c_graph import Node
from rlzoo_plus.deploy.c_layers import (
    argmax,
    conv,
    gemm,
    layer_norm,
    lstm,
    matmul,
    reduction,
    softmax,
)
from rlzoo_plus.deploy.c_loops import Lines, constant, copy, each_entry, literal, present
from rlzoo_plus.errors import ConfigError


def translate(node: Node) -> Lines:
    """Return the statements that compute the outputs of a node.

    Raises:
        ConfigError: The operator, or this use of it, has no translation.
    """
    function = _OPERATORS.get(node.kind)
    if function is None:
        raise ConfigError(
            f"the policy cannot be written in C: its operator {node.kind} has no translation. "
            "Use --format onnx."
        )
    return ["{", *("  " + line for line in function(node)), "}"]


# One entry of one output --------------------------------------------------------------------------


def _plain(pattern: str) -> Callable[[Node], Lines]:
    """Return an operator whose pattern has the entries as {0}, {1}, {2}."""
    return lambda node: each_entry(node, pattern.format)


def _function(pattern: str) -> Callable[[Node], Lines]:
    """Return the same of one input, with functions of math.h as in `@exp(x)`, and its numbers."""

    def operator(node: Node) -> Lines:
        array = present(node.inputs[0])
        suffix, text = "" if array.dtype == "float64" else "f", pattern
        for name in ("tanh", "exp", "log1p", "log", "erf", "fabs", "sqrt", "nearbyint"):
            text = text.replace(f"@{name}(", f"{name}{suffix}(")
        numbers = {"alpha": _DEFAULTS.get(node.kind, (1.0, 1.0))[0]}
        numbers["gamma"] = _DEFAULTS.get(node.kind, (1.0, 1.0))[1]
        numbers |= {key: node.attributes[key] for key in numbers if key in node.attributes}
        shown = {key: literal(value, array) for key, value in numbers.items()}
        one, half = literal(1.0, array), literal(0.5, array)
        return each_entry(node, lambda x: text.format(x=x, one=one, half=half, **shown))

    return operator


_DEFAULTS = {"LeakyRelu": (0.01, 1.0), "Selu": (1.6732632423543772, 1.0507009873554805)}


def _gelu(node: Node) -> Lines:
    if node.attributes.get("approximate", b"none") not in (b"none", "none"):
        return _function(
            "{half} * {x} * ({one} + @tanh(0.7978845608028654f * ({x} + 0.044715f * {x} * {x} * "
            "{x})))"
        )(node)
    return _function("{half} * {x} * ({one} + @erf({x} * 0.70710678118654752f))")(node)


def _cast(node: Node) -> Lines:
    (out,) = node.outputs
    if out.dtype == "bool":
        return each_entry(node, "{0} != 0".format)
    return each_entry(node, f"({out.c_type}){{0}}".format)


def _many(pattern: str) -> Callable[[Node], Lines]:
    """Return an operator of any number of inputs, two at a time."""

    def operator(node: Node) -> Lines:
        def formula(first: str, *others: str) -> str:
            for other in others:
                first = pattern.format(first, other)
            return first

        return each_entry(node, formula)

    return operator


def _clip(node: Node) -> Lines:
    has_low, has_high = (len(node.inputs) > n and node.inputs[n] is not None for n in (1, 2))

    def formula(x: str, *bounds: str) -> str:
        if has_low:
            x = f"LARGER({x}, {bounds[0]})"
        return f"SMALLER({x}, {bounds[-1]})" if has_high else x

    return each_entry(node, formula)


# Moving entries -----------------------------------------------------------------------------------


def _transpose(node: Node) -> Lines:
    source, (out,) = present(node.inputs[0]), node.outputs
    order = node.attributes.get("perm", range(len(source.shape))[::-1])
    strides = [source.strides[axis] for axis in order]
    return copy(out, source, out.shape, (out.strides, 0), (strides, 0))


def _slice(node: Node) -> Lines:
    source, (out,) = present(node.inputs[0]), node.outputs
    starts, axes, steps = (constant(node, number) for number in (1, 3, 4))
    assert starts is not None
    strides, first = list(source.strides), 0
    chosen = range(len(starts)) if axes is None else axes.tolist()
    for number, axis in enumerate(chosen):
        size = source.shape[axis]
        step = 1 if steps is None else int(steps[number])
        # As Python clamps them.
        start = slice(int(starts[number]), None, step).indices(size)[0]
        first += start * source.strides[axis]
        strides[axis] = step * source.strides[axis]
    return copy(out, source, out.shape, (out.strides, 0), (strides, first))


def _concat(node: Node) -> Lines:
    (out,) = node.outputs
    axis, lines, start = node.axis(0, out), [], 0
    for source in map(present, node.inputs):
        to = out.strides, start * out.strides[axis]
        lines += copy(out, source, source.shape, to, (source.strides, 0))
        start += source.shape[axis]
    return lines


def _split(node: Node) -> Lines:
    source = present(node.inputs[0])
    axis, lines, start = node.axis(0, source), [], 0
    for out in node.outputs:
        since = source.strides, start * source.strides[axis]
        lines += copy(out, source, out.shape, (out.strides, 0), since)
        start += out.shape[axis]
    return lines


_OPERATORS: dict[str, Callable[[Node], Lines]] = {
    **{"Add": _plain("{0} + {1}"), "Sub": _plain("{0} - {1}"), "Mul": _plain("{0} * {1}")},
    **{"Div": _plain("{0} / {1}"), "Neg": _plain("-{0}"), "Where": _plain("{0} ? {1} : {2}")},
    **{"Equal": _plain("{0} == {1}"), "Greater": _plain("{0} > {1}"), "Less": _plain("{0} < {1}")},
    **{"And": _plain("{0} && {1}"), "Or": _plain("{0} || {1}"), "Not": _plain("!{0}")},
    **{"Max": _many("LARGER({0}, {1})"), "Min": _many("SMALLER({0}, {1})"), "Clip": _clip},
    **{"Cast": _cast, "Relu": _plain("{0} < 0 ? 0 : {0}"), "Gelu": _gelu},
    **{"Tanh": _function("@tanh({x})"), "Exp": _function("@exp({x})")},
    **{"Log": _function("@log({x})"), "Sqrt": _function("@sqrt({x})")},
    **{"Erf": _function("@erf({x})"), "Round": _function("@nearbyint({x})")},
    **{"Abs": _function("@fabs({x})"), "Sigmoid": _function("{one} / ({one} + @exp(-{x}))")},
    "Elu": _function("{x} < 0 ? {alpha} * (@exp({x}) - {one}) : {x}"),
    "Selu": _function("{gamma} * ({x} < 0 ? {alpha} * (@exp({x}) - {one}) : {x})"),
    "LeakyRelu": _function("{x} < 0 ? {alpha} * {x} : {x}"),
    "Softplus": _function("LARGER({x}, 0) + @log1p(@exp(-@fabs({x})))"),
    "Swish": _function("{x} / ({one} + @exp(-{alpha} * {x}))"),
    "Mish": _function("{x} * @tanh(LARGER({x}, 0) + @log1p(@exp(-@fabs({x}))))"),
    **{"Transpose": _transpose, "Slice": _slice, "Concat": _concat, "Split": _split},
    **{"Gemm": gemm, "MatMul": matmul, "Conv": conv, "LSTM": lstm},
    "ReduceSum": reduction("0", "total += {x};", "total"),
    "ReduceMean": reduction("0", "total += {x};", "total / {n}"),
    "ReduceMax": reduction("-INFINITY", "total = LARGER(total, {x});", "total"),
    "ReduceLogSumExp": reduction(
        "0", "total += {exp}({x} - most);", "most + {log}(total)", twice=True
    ),
    **{"Softmax": softmax, "ArgMax": argmax, "LayerNormalization": layer_norm},
}

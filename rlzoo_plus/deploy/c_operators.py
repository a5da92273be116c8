"""The operators of ONNX as C99: loops over arrays of fixed shapes.

Written from the operators' specification, https://onnx.ai/onnx/operators (opset 20). Entries that
are not a number stay so, as in torch: a comparison with one never chooses the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlzoo_plus.deploy.c_graph import Array, Node
from rlzoo_plus.errors import ConfigError

Lines = list[str]


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


# Loops and places ---------------------------------------------------------------------------------


def _loops(shape: Sequence[int], body: Lines, names: str = "i") -> Lines:
    """Return a body within a loop for each axis; its variables are a name and the axis."""
    lines, depth = [], 0
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        index = f"{names}{axis}"
        lines.append("  " * depth + f"for (int {index} = 0; {index} < {size}; {index}++)")
        depth += 1
    if len(body) == 1:
        return [*lines, "  " * depth + body[0]]
    inner = ["{", *("  " + line for line in body), "}"]
    return [*lines, *("  " * depth + line for line in inner)]


def _place(sizes: Sequence[int], strides: Sequence[int], start: int = 0, names: str = "i") -> str:
    """Return the number of an entry, of the variables that `_loops` has."""
    parts = [
        f"{names}{axis} * {stride}" if stride != 1 else f"{names}{axis}"
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
        if size > 1 and stride
    ]
    return " + ".join([*parts, str(start)] if start or not parts else parts)


def _broadcast(array: Array, shape: Sequence[int]) -> str:
    """Return an entry of an array that stands for one of a larger shape."""
    missing = len(shape) - len(array.shape)
    strides = [
        0 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True)
    ]
    return f"{array.expression}[{_place(shape, [0] * missing + strides)}]"


def _each(node: Node, formula: Callable[..., str]) -> Lines:
    """Return a loop that computes each entry of the output from those of the inputs."""
    (out,) = node.outputs
    inputs = [array for array in node.inputs if array is not None]
    if all(array.size in (1, out.size) for array in inputs):
        shape: tuple[int, ...] = (out.size,)
        read = [f"{a.expression}[{'i0' if a.size > 1 else 0}]" for a in inputs]
    else:
        shape, read = out.shape, [_broadcast(array, out.shape) for array in inputs]
    strides = Array("", out.dtype, shape).strides
    return _loops(shape, [f"{out.expression}[{_place(shape, strides)}] = {formula(*read)};"])


def _copy(
    out: Array, source: Array, shape: Sequence[int], to: tuple[Sequence[int], int],
    since: tuple[Sequence[int], int],
) -> Lines:  # fmt: skip
    """Return a loop that copies entries between places, each strides and a start."""
    there = f"{out.expression}[{_place(shape, *to)}]"
    return _loops(shape, [f"{there} = {source.expression}[{_place(shape, *since)}];"])


def _constant(node: Node, number: int) -> np.ndarray | None:
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


def _present(array: Array | None) -> Array:
    assert array is not None
    return array


def _math(name: str, array: Array) -> str:
    """Return a function of math.h for the type of an array."""
    return name if array.dtype == "float64" else f"{name}f"


def _number(value: float, array: Array) -> str:
    return f"{float(value)!r}" + ("" if array.dtype == "float64" else "f")


# One entry of one output --------------------------------------------------------------------------


def _plain(pattern: str) -> Callable[[Node], Lines]:
    """Return an operator whose pattern has the entries as {0}, {1}, {2}."""
    return lambda node: _each(node, pattern.format)


def _function(pattern: str) -> Callable[[Node], Lines]:
    """Return the same of one input, with functions of math.h as in `@exp(x)`, and its numbers."""

    def operator(node: Node) -> Lines:
        array = _present(node.inputs[0])
        suffix, text = "" if array.dtype == "float64" else "f", pattern
        for name in ("tanh", "exp", "log1p", "log", "erf", "fabs", "sqrt", "nearbyint"):
            text = text.replace(f"@{name}(", f"{name}{suffix}(")
        numbers = {"alpha": _DEFAULTS.get(node.kind, (1.0, 1.0))[0]}
        numbers["gamma"] = _DEFAULTS.get(node.kind, (1.0, 1.0))[1]
        numbers |= {key: node.attributes[key] for key in numbers if key in node.attributes}
        shown = {key: _number(value, array) for key, value in numbers.items()}
        one, half = _number(1.0, array), _number(0.5, array)
        return _each(node, lambda x: text.format(x=x, one=one, half=half, **shown))

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
        return _each(node, "{0} != 0".format)
    return _each(node, f"({out.c_type}){{0}}".format)


def _many(pattern: str) -> Callable[[Node], Lines]:
    """Return an operator of any number of inputs, two at a time."""

    def operator(node: Node) -> Lines:
        def formula(first: str, *others: str) -> str:
            for other in others:
                first = pattern.format(first, other)
            return first

        return _each(node, formula)

    return operator


def _clip(node: Node) -> Lines:
    has_low, has_high = (len(node.inputs) > n and node.inputs[n] is not None for n in (1, 2))

    def formula(x: str, *bounds: str) -> str:
        if has_low:
            x = f"LARGER({x}, {bounds[0]})"
        return f"SMALLER({x}, {bounds[-1]})" if has_high else x

    return _each(node, formula)


# Moving entries -----------------------------------------------------------------------------------


def _transpose(node: Node) -> Lines:
    source, (out,) = _present(node.inputs[0]), node.outputs
    order = node.attributes.get("perm", range(len(source.shape))[::-1])
    strides = [source.strides[axis] for axis in order]
    return _copy(out, source, out.shape, (out.strides, 0), (strides, 0))


def _slice(node: Node) -> Lines:
    source, (out,) = _present(node.inputs[0]), node.outputs
    starts, axes, steps = (_constant(node, number) for number in (1, 3, 4))
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
    return _copy(out, source, out.shape, (out.strides, 0), (strides, first))


def _concat(node: Node) -> Lines:
    (out,) = node.outputs
    axis, lines, start = node.axis(0, out), [], 0
    for source in map(_present, node.inputs):
        to = out.strides, start * out.strides[axis]
        lines += _copy(out, source, source.shape, to, (source.strides, 0))
        start += source.shape[axis]
    return lines


def _split(node: Node) -> Lines:
    source = _present(node.inputs[0])
    axis, lines, start = node.axis(0, source), [], 0
    for out in node.outputs:
        since = source.strides, start * source.strides[axis]
        lines += _copy(out, source, out.shape, (out.strides, 0), since)
        start += out.shape[axis]
    return lines


# Sums ---------------------------------------------------------------------------------------------


def _gemm(node: Node) -> Lines:
    a, b = _present(node.inputs[0]), _present(node.inputs[1])
    c = node.inputs[2] if len(node.inputs) > 2 else None
    get, (out,) = node.attributes.get, node.outputs
    rows, width = out.shape
    inner = a.shape[0] if get("transA", 0) else a.shape[1]
    left = f"k * {a.shape[1]} + i0" if get("transA", 0) else f"i0 * {a.shape[1]} + k"
    right = f"i1 * {b.shape[1]} + k" if get("transB", 0) else f"k * {b.shape[1]} + i1"
    left, right = (
        text.replace("i0", "0" if rows == 1 else "i0").replace("i1", "0" if width == 1 else "i1")
        for text in (left, right)
    )
    total = "sum"
    if get("alpha", 1.0) != 1.0:
        total = f"{_number(get('alpha', 1.0), out)} * sum"
    if c is not None:
        scale = "" if get("beta", 1.0) == 1.0 else f"{_number(get('beta', 1.0), out)} * "
        total += f" + {scale}{_broadcast(c, out.shape)}"
    body = [
        f"{out.c_type} sum = 0;",
        f"for (int k = 0; k < {inner}; k++)",
        f"  sum += {a.expression}[{left}] * {b.expression}[{right}];",
        f"{out.expression}[{_place(out.shape, out.strides)}] = {total};",
    ]
    return _loops(out.shape, body)


def _matmul(node: Node) -> Lines:
    a, b, (out,) = _present(node.inputs[0]), _present(node.inputs[1]), node.outputs
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ConfigError(
            "the policy cannot be written in C: a MatMul of a vector has no translation. Use "
            "--format onnx."
        )
    inner, last = a.shape[-1], len(out.shape) - 1

    def factor(array: Array, own: int, step: int) -> str:
        """Return the place of an entry: batches, one own axis, and k."""
        missing = len(out.shape) - len(array.shape)
        strides = [0] * missing + [
            0 if size == 1 else stride
            for size, stride in zip(array.shape, array.strides, strict=True)
        ]
        strides[-2:] = [0, 0]
        strides[own] = array.strides[own - missing]
        return f"{array.expression}[{_place(out.shape, strides)} + k * {step}]"

    left = factor(a, last - 1, 1)
    right = factor(b, last, b.strides[-2])
    body = [
        f"{out.c_type} sum = 0;",
        f"for (int k = 0; k < {inner}; k++) sum += {left} * {right};",
        f"{out.expression}[{_place(out.shape, out.strides)}] = sum;",
    ]
    return _loops(out.shape, body)


def _conv(node: Node) -> Lines:
    x, w = _present(node.inputs[0]), _present(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    get, (out,) = node.attributes.get, node.outputs
    if len(x.shape) != 4 or get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET"):
        raise ConfigError(
            "the policy cannot be written in C: this kind of Conv has no translation. Use --format "
            "onnx."
        )
    tops, lefts = get("pads", [0] * 4)[:2]
    down, across = get("strides", [1, 1])
    far, wide = get("dilations", [1, 1])
    _, channels, height, width = x.shape
    groups = int(get("group", 1))
    per_group = out.shape[1] // groups
    rows, cols = w.shape[2:]
    start = "0" if bias is None else f"{bias.expression}[o]"
    group = "" if groups == 1 else f" + o / {per_group} * {channels // groups}"
    of_weight = f"((o * {w.shape[1]} + c) * {rows} + r) * {cols} + s"
    return [
        f"for (int o = 0; o < {out.shape[1]}; o++)",
        f"  for (int i = 0; i < {out.shape[2]}; i++)",
        f"    for (int j = 0; j < {out.shape[3]}; j++) {{",
        f"      {out.c_type} sum = {start};",
        f"      for (int c = 0; c < {w.shape[1]}; c++)",
        f"        for (int r = 0; r < {rows}; r++)",
        f"          for (int s = 0; s < {cols}; s++) {{",
        f"            int y = i * {down} - {tops} + r * {far};",
        f"            int x = j * {across} - {lefts} + s * {wide};",
        f"            if (y < 0 || y >= {height} || x < 0 || x >= {width}) continue;",
        f"            sum += {x.expression}[((c{group}) * {height} + y) * {width} + x] *",
        f"                   {w.expression}[{of_weight}];",
        "          }",
        f"      {out.expression}[(o * {out.shape[2]} + i) * {out.shape[3]} + j] = sum;",
        "    }",
    ]


def _reduced(node: Node) -> tuple[Array, list[int], str]:
    """Return the input of a reduction, the axes, and the place of an entry within a loop of k."""
    source = _present(node.inputs[0])
    axes = _constant(node, 1)
    chosen = node.attributes.get("axes") if axes is None else axes.tolist()
    count = len(source.shape)
    over = sorted({axis % count for axis in chosen}) if chosen else list(range(count))
    return source, over, f"{source.expression}[{_place(source.shape, source.strides)}]"


def _reduction(start: str, step: str, end: str, *, twice: bool = False) -> Callable[[Node], Lines]:
    """Return an operator that goes over some axes; `twice`, its steps know the greatest entry."""

    def operator(node: Node) -> Lines:
        (source, over, entry), (out,) = _reduced(node), node.outputs
        kept = [1 if axis in over else size for axis, size in enumerate(source.shape)]
        inner = [size if axis in over else 1 for axis, size in enumerate(source.shape)]
        count = int(np.prod([source.shape[axis] for axis in over]))
        place = _place(kept, Array("", out.dtype, tuple(kept)).strides)
        names = {"x": entry, "exp": _math("exp", out), "log": _math("log", out), "n": str(count)}
        text = {key: part.format(**names) for key, part in (("step", step), ("end", end))}
        body = []
        if twice:
            body += [f"{out.c_type} most = -INFINITY;"]
            body += _loops(inner, [f"most = LARGER(most, {entry});"])
            body += ["if (isinf(most)) most = 0;"]  # Infinity minus itself is no number.
        body += [f"{out.c_type} total = {start};"]
        body += _loops(inner, [text["step"]])
        return _loops(kept, [*body, f"{out.expression}[{place}] = {text['end']};"])

    return operator


def _softmax(node: Node) -> Lines:
    source, (out,) = _present(node.inputs[0]), node.outputs
    axis = node.axis(-1, source)
    outer = [1 if number == axis else size for number, size in enumerate(source.shape)]
    step, count, start = source.strides[axis], source.shape[axis], _place(outer, source.strides)
    x, y = f"{source.expression}[start + k * {step}]", f"{out.expression}[start + k * {step}]"
    loop = f"for (int k = 0; k < {count}; k++)"
    body = [
        f"int start = {start};",
        f"{out.c_type} most = -INFINITY, sum = 0;",
        f"{loop} most = LARGER(most, {x});",
        f"{loop} sum += {y} = {_math('exp', out)}({x} - most);",
        f"{loop} {y} /= sum;",
    ]
    return _loops(outer, body)


def _argmax(node: Node) -> Lines:
    source, (out,) = _present(node.inputs[0]), node.outputs
    axis = node.axis(0, source)
    outer = [1 if number == axis else size for number, size in enumerate(source.shape)]
    place = _place(outer, Array("", out.dtype, tuple(outer)).strides)
    x = f"{source.expression}[start + k * {source.strides[axis]}]"
    body = [
        f"int start = {_place(outer, source.strides)}, best = 0;",
        f"for (int k = 1; k < {source.shape[axis]}; k++)",
        f"  if ({x} > {x.replace('k *', 'best *')}) best = k;",
        f"{out.expression}[{place}] = best;",
    ]
    return _loops(outer, body)


def _layer_norm(node: Node) -> Lines:
    source, scale = _present(node.inputs[0]), _present(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    out, axis = node.outputs[0], node.axis(-1, source)
    count = int(np.prod(source.shape[axis:]))
    x = f"{source.expression}[start + k]"
    shift = "" if bias is None else f" + {bias.expression}[k]"
    loop, real = f"for (int k = 0; k < {count}; k++)", out.c_type
    epsilon = _number(node.attributes.get("epsilon", 1e-5), out)
    body = [
        f"int start = i0 * {count};" if source.size > count else "int start = 0;",
        f"{real} mean = 0, spread = 0;",
        f"{loop} mean += {x};",
        f"mean /= {count};",
        f"{loop} spread += ({x} - mean) * ({x} - mean);",
        f"spread = 1 / {_math('sqrt', out)}(spread / {count} + {epsilon});",
        f"{loop} {out.expression}[start + k] = ({x} - mean) * spread * "
        f"{scale.expression}[k]{shift};",
    ]
    return _loops((source.size // count,), body)


def _lstm(node: Node) -> Lines:
    x, w, r, b, _, h0, c0 = (*node.inputs, None, None)[:7]
    x, w, r = _present(x), _present(w), _present(r)
    steps, batch, width = x.shape
    hidden = int(node.attributes["hidden_size"])
    known = {"hidden_size", "direction", "layout", "input_forget"}
    is_plain = not any(map(node.attributes.get, ("layout", "input_forget")))
    if batch != 1 or w.shape[0] != 1 or not is_plain or set(node.attributes) - known:
        raise ConfigError(
            "the policy cannot be written in C: this kind of LSTM has no translation. Use --format "
            "onnx."
        )
    real, end = x.c_type, "" if x.dtype == "float64" else "f"
    outputs = [*node.outputs, *([None] * 3)][:3]
    bias = "0" if b is None else f"{b.expression}[g] + {b.expression}[g + {4 * hidden}]"

    def first(array: Array | None) -> str:
        return "0" if array is None else f"{array.expression}[j]"

    lines = [
        f"static const {real} one = 1;",
        f"{real} h[{hidden}], c[{hidden}], gates[{4 * hidden}];",
        f"for (int j = 0; j < {hidden}; j++) h[j] = {first(h0)}, c[j] = {first(c0)};",
        f"for (int t = 0; t < {steps}; t++) {{",
        f"  for (int g = 0; g < {4 * hidden}; g++) {{",
        f"    {real} sum = {bias};",
        f"    for (int k = 0; k < {width}; k++)",
        f"      sum += {x.expression}[t * {width} + k] * {w.expression}[g * {width} + k];",
        f"    for (int k = 0; k < {hidden}; k++) sum += h[k] * {r.expression}[g * {hidden} + k];",
        "    gates[g] = sum;",
        "  }",
        f"  for (int j = 0; j < {hidden}; j++) {{",
        f"    {real} in = one / (one + exp{end}(-gates[j]));",
        f"    {real} out = one / (one + exp{end}(-gates[j + {hidden}]));",
        f"    {real} keep = one / (one + exp{end}(-gates[j + {2 * hidden}]));",
        f"    c[j] = keep * c[j] + in * tanh{end}(gates[j + {3 * hidden}]);",
        f"    h[j] = out * tanh{end}(c[j]);",
    ]
    if outputs[0] is not None:
        lines.append(f"    {outputs[0].expression}[t * {hidden} + j] = h[j];")
    lines += ["  }", "}"]
    for out, name in zip(outputs[1:], "hc", strict=True):
        if out is not None:
            copied = f"{out.expression}[j] = {name}[j];"
            lines.append(f"for (int j = 0; j < {hidden}; j++) {copied}")
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
    **{"Gemm": _gemm, "MatMul": _matmul, "Conv": _conv, "LSTM": _lstm},
    "ReduceSum": _reduction("0", "total += {x};", "total"),
    "ReduceMean": _reduction("0", "total += {x};", "total / {n}"),
    "ReduceMax": _reduction("-INFINITY", "total = LARGER(total, {x});", "total"),
    "ReduceLogSumExp": _reduction(
        "0", "total += {exp}({x} - most);", "most + {log}(total)", twice=True
    ),
    **{"Softmax": _softmax, "ArgMax": _argmax, "LayerNormalization": _layer_norm},
}

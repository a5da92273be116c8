"""The operators of ONNX that add up entries, as C99: layers, reductions, choices.

See `c_operators`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlzoo_plus.deploy.c_graph import Array, Node
from rlzoo_plus.deploy.c_loops import (
    Lines,
    broadcast,
    constant,
    literal,
    loops,
    math_name,
    place_of,
    present,
)
from rlzoo_plus.errors import ConfigError


def gemm(node: Node) -> Lines:
    """Return a product of two matrices, plus a third."""
    a, b = present(node.inputs[0]), present(node.inputs[1])
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
        total = f"{literal(get('alpha', 1.0), out)} * sum"
    if c is not None:
        scale = "" if get("beta", 1.0) == 1.0 else f"{literal(get('beta', 1.0), out)} * "
        total += f" + {scale}{broadcast(c, out.shape)}"
    body = [
        f"{out.c_type} sum = 0;",
        f"for (int k = 0; k < {inner}; k++)",
        f"  sum += {a.expression}[{left}] * {b.expression}[{right}];",
        f"{out.expression}[{place_of(out.shape, out.strides)}] = {total};",
    ]
    return loops(out.shape, body)


def matmul(node: Node) -> Lines:
    """Return products of matrices, a batch of them."""
    a, b, (out,) = present(node.inputs[0]), present(node.inputs[1]), node.outputs
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
        return f"{array.expression}[{place_of(out.shape, strides)} + k * {step}]"

    left = factor(a, last - 1, 1)
    right = factor(b, last, b.strides[-2])
    body = [
        f"{out.c_type} sum = 0;",
        f"for (int k = 0; k < {inner}; k++) sum += {left} * {right};",
        f"{out.expression}[{place_of(out.shape, out.strides)}] = sum;",
    ]
    return loops(out.shape, body)


def conv(node: Node) -> Lines:
    """Return a convolution of pictures."""
    x, w = present(node.inputs[0]), present(node.inputs[1])
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
    source = present(node.inputs[0])
    axes = constant(node, 1)
    chosen = node.attributes.get("axes") if axes is None else axes.tolist()
    count = len(source.shape)
    over = sorted({axis % count for axis in chosen}) if chosen else list(range(count))
    return source, over, f"{source.expression}[{place_of(source.shape, source.strides)}]"


def reduction(start: str, step: str, end: str, *, twice: bool = False) -> Callable[[Node], Lines]:
    """Return an operator that goes over some axes; `twice`, its steps know the greatest entry."""

    def operator(node: Node) -> Lines:
        (source, over, entry), (out,) = _reduced(node), node.outputs
        kept = [1 if axis in over else size for axis, size in enumerate(source.shape)]
        inner = [size if axis in over else 1 for axis, size in enumerate(source.shape)]
        count = int(np.prod([source.shape[axis] for axis in over]))
        place = place_of(kept, Array("", out.dtype, tuple(kept)).strides)
        names = {
            "x": entry,
            "exp": math_name("exp", out),
            "log": math_name("log", out),
            "n": str(count),
        }
        text = {key: part.format(**names) for key, part in (("step", step), ("end", end))}
        body = []
        if twice:
            body += [f"{out.c_type} most = -INFINITY;"]
            body += loops(inner, [f"most = LARGER(most, {entry});"])
            body += ["if (isinf(most)) most = 0;"]  # Infinity minus itself is no number.
        body += [f"{out.c_type} total = {start};"]
        body += loops(inner, [text["step"]])
        return loops(kept, [*body, f"{out.expression}[{place}] = {text['end']};"])

    return operator


def softmax(node: Node) -> Lines:
    """Return what exponentiates, and divides by the sum."""
    source, (out,) = present(node.inputs[0]), node.outputs
    axis = node.axis(-1, source)
    outer = [1 if number == axis else size for number, size in enumerate(source.shape)]
    step, count, start = source.strides[axis], source.shape[axis], place_of(outer, source.strides)
    x, y = f"{source.expression}[start + k * {step}]", f"{out.expression}[start + k * {step}]"
    loop = f"for (int k = 0; k < {count}; k++)"
    body = [
        f"int start = {start};",
        f"{out.c_type} most = -INFINITY, sum = 0;",
        f"{loop} most = LARGER(most, {x});",
        f"{loop} sum += {y} = {math_name('exp', out)}({x} - most);",
        f"{loop} {y} /= sum;",
    ]
    return loops(outer, body)


def argmax(node: Node) -> Lines:
    """Return what finds the place of the greatest entry, the first of equal ones."""
    source, (out,) = present(node.inputs[0]), node.outputs
    axis = node.axis(0, source)
    outer = [1 if number == axis else size for number, size in enumerate(source.shape)]
    place = place_of(outer, Array("", out.dtype, tuple(outer)).strides)
    x = f"{source.expression}[start + k * {source.strides[axis]}]"
    body = [
        f"int start = {place_of(outer, source.strides)}, best = 0;",
        f"for (int k = 1; k < {source.shape[axis]}; k++)",
        f"  if ({x} > {x.replace('k *', 'best *')}) best = k;",
        f"{out.expression}[{place}] = best;",
    ]
    return loops(outer, body)


def layer_norm(node: Node) -> Lines:
    """Return what shifts to the mean 0 and divides by the deviation."""
    source, scale = present(node.inputs[0]), present(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    out, axis = node.outputs[0], node.axis(-1, source)
    count = int(np.prod(source.shape[axis:]))
    x = f"{source.expression}[start + k]"
    shift = "" if bias is None else f" + {bias.expression}[k]"
    loop, real = f"for (int k = 0; k < {count}; k++)", out.c_type
    epsilon = literal(node.attributes.get("epsilon", 1e-5), out)
    body = [
        f"int start = i0 * {count};" if source.size > count else "int start = 0;",
        f"{real} mean = 0, spread = 0;",
        f"{loop} mean += {x};",
        f"mean /= {count};",
        f"{loop} spread += ({x} - mean) * ({x} - mean);",
        f"spread = 1 / {math_name('sqrt', out)}(spread / {count} + {epsilon});",
        f"{loop} {out.expression}[start + k] = ({x} - mean) * spread * "
        f"{scale.expression}[k]{shift};",
    ]
    return loops((source.size // count,), body)


def lstm(node: Node) -> Lines:
    """Return the steps of a layer with long short-term memory."""
    x, w, r, b, _, h0, c0 = (*node.inputs, None, None)[:7]
    x, w, r = present(x), present(w), present(r)
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

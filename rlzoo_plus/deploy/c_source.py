"""A policy as one C99 file: the graph, what it keeps between decisions, and a test of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.deploy.c_graph import Array, read_graph
from rlzoo_plus.deploy.c_operators import translate
from rlzoo_plus.export.signature import STATE_NAMES, Port, Signature

START = "episode_start"
_HEAD = """\
/* {title}

   C99, without memory from the heap. Compile it with `cc -O2 -std=c99 -c policy.c`, and link with
   the mathematics library (-lm). With -DPOLICY_TEST it is a program that tests itself.

   static policy p;            // What it keeps between decisions, and room for one
   policy_reset(&p);           // At the start of an episode
   {call}

{ports}

{facts}
*/
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
"""
_TEST = """\

#ifdef POLICY_TEST
#include <stdio.h>
#include <time.h>

{cases}
int main(void) {{
  static policy p;
  double worst = 0, slowest = 0;
  for (int n = 0; n < 10000; n++) {{
    clock_t began = clock();
    int i = n % {count};
    if (restarts[i]) policy_reset(&p);
    {call}
    double taken = (double)(clock() - began) / CLOCKS_PER_SEC;
    if (n && taken > slowest) slowest = taken;
    for (int k = 0; k < {width}; k++) {{
      double gap = fabs((double)got[k] - (double)expected[i][k]);
      if (!(gap <= worst)) worst = gap;
    }}
  }}
  printf("difference %.3g slowest_us %.3f bytes %zu\\n", worst, slowest * 1e6, sizeof p);
  return 0;
}}
#endif
"""


@dataclass(frozen=True)
class Case:
    """One decision of the test: what went in, as the functions take it, and what came out."""

    starts: bool  # Whether an episode begins with it
    inputs: Mapping[str, np.ndarray]  # One frame of each
    action: np.ndarray


@dataclass(frozen=True)
class Source:
    """A policy in C."""

    text: str  # The file
    arguments: tuple[Array, ...]  # What `policy_act` takes, in its order; the action is the last
    state: tuple[Array, ...]  # What a `policy` begins with: what it keeps
    room: int  # Bytes that are enough for a `policy`


def write_c(
    data: bytes,
    signature: Signature,
    frames: int,
    facts: Mapping[str, Any],
    cases: Sequence[Case] = (),
) -> Source:
    """Translate an ONNX file of fixed shapes, for one observation at a time.

    Args:
        data: The file, with a batch of 1.
        signature: Its inputs and outputs.
        frames: How many observations are stacked; the functions take the newest one.
        facts: What a comment says of it.
        cases: Decisions that the test within the file repeats.

    Raises:
        ConfigError: The graph cannot be written in C.
    """
    names = _identifiers(signature)
    graph = read_graph(data, {name: f"in_{own}" for name, own in names.items()})
    own = STATE_NAMES if signature.recurrent else ()
    given = [p for p in signature.inputs if p.name not in own and p.name != START]
    stacked = signature.observations if frames > 1 else ()
    kept = [p for p in signature.inputs if p in stacked or p.name in own]
    state = tuple(Array(f"p->in_{names[p.name]}", p.dtype, p.sizes(1)) for p in kept)
    taken = [
        Array(names[p.name], p.dtype, frame_shape(p, frames if p in stacked else 1)) for p in given
    ]
    out = graph.outputs[0]
    action = Array("action", out.dtype, signature.outputs[0].sizes(1)[1:])
    arguments = (*taken, action)
    told = [*zip(taken, given, strict=True), (action, signature.outputs[0])]
    text = _head(arguments, [port.meaning for _, port in told], facts)
    body = [line for array in taken for line in _take(array, state, frames)]
    body += _recall(signature, names)
    for node in graph.nodes:
        body += translate(node)
    body.append(_move("action", out))
    if signature.recurrent:
        places = [f"p->in_{names[name]}" for name in STATE_NAMES]
        body += map(_move, places, graph.outputs[1:])
    used = set(re.findall(r"\w+", " ".join(body)))
    lines = ["", *(_constant(a) for a in graph.constants if a.expression in used), ""]
    lines += _functions((*state, *graph.computed), arguments, body)
    text += "\n".join(lines) + "\n"
    if cases:
        text += _test(arguments, [port.name for port in given], cases)
    return Source(text, arguments, state, _room((*state, *graph.computed)))


def _head(arguments: Sequence[Array], meanings: Sequence[str], facts: Mapping[str, Any]) -> str:
    """Return the comment that says how to use the file, and what it includes."""
    told = [
        f"   {array.expression}: {array.c_type}[{array.size}], {meaning}."
        for array, meaning in zip(arguments, meanings, strict=True)
    ]
    return _HEAD.format(
        title=_comment(f"A policy of {facts.get('algorithm')} for {facts.get('environment')}."),
        call=f"policy_act(&p, {', '.join(array.expression for array in arguments)});",
        ports="\n".join(map(_comment, told)),
        facts=_comment(json.dumps(facts, indent=1)),
    )


def _functions(members: Sequence[Array], arguments: Sequence[Array], body: list[str]) -> list[str]:
    """Return the type `policy`, and the two functions."""
    *taken, action = arguments
    parameters = [f"const {array.c_type} *{array.expression}" for array in taken]
    parameters.append(f"{action.c_type} *{action.expression}")
    return [
        "typedef struct {",
        *(f"  {member};" for member in [_member(array) for array in members] or ["char unused"]),
        "} policy;",
        "",
        "/* Forget the episode before. */",
        "void policy_reset(policy *p) {",
        "  memset(p, 0, sizeof *p);",
        "}",
        "",
        "/* Decide: read the observation, write the action. */",
        f"void policy_act(policy *p, {', '.join(parameters)}) {{",
        *("  " + line for line in body),
        "}",
    ]


def frame_shape(port: Port, frames: int) -> tuple[int, ...]:
    """Return the shape of one observation, of which a port may stack several."""
    shape = port.sizes(1)[1:]
    if frames == 1:
        return shape
    axis = 0 if len(shape) == 3 else len(shape) - 1
    return tuple(size // frames if number == axis else size for number, size in enumerate(shape))


def _identifiers(signature: Signature) -> dict[str, str]:
    """Return a name in C for each input; the keys of a dictionary may be any text."""
    names: dict[str, str] = {}
    for port in signature.inputs:
        name = port.name
        if signature.keys and port in signature.observations:
            name = "obs_" + re.sub(r"\W", "_", name, flags=re.ASCII)
        while name in names.values():
            name += "_"
        names[port.name] = name
    return names


def _take(array: Array, state: Sequence[Array], frames: int) -> list[str]:
    """Return what makes an input of the graph of an argument: itself, or its stack of frames."""
    name, shape = array.expression, array.shape
    place = f"p->in_{name}"
    if place not in {one.expression for one in state}:
        return [f"const {array.c_type} *in_{name} = {name};", f"(void)in_{name};"]
    rows = 1 if len(shape) == 3 else int(np.prod(shape[:-1], dtype=int))
    width = array.size // rows
    row, size = f"{place} + i * {frames * width}", f"sizeof {name}[0]"
    return [
        f"for (int i = 0; i < {rows}; i++) {{",
        f"  memmove({row}, {row} + {width}, {(frames - 1) * width} * {size});",
        f"  memcpy({row} + {(frames - 1) * width}, {name} + i * {width}, {width} * {size});",
        "}",
        f"const {array.c_type} *in_{name} = {place};",
        f"(void)in_{name};",
    ]


def _recall(signature: Signature, names: Mapping[str, str]) -> list[str]:
    """Return what makes inputs of the graph of the state of a recurrent policy."""
    if not signature.recurrent:
        return []
    lines = [f"const float *in_{names[name]} = p->in_{names[name]};" for name in STATE_NAMES]
    # `policy_reset` clears the state, so that no decision has to.
    return [*lines, f"static const uint8_t in_{names[START]}[1] = {{0}};"]


def _move(place: str, array: Array) -> str:
    return f"memcpy({place}, {array.expression}, {array.size} * sizeof {array.expression}[0]);"


def _room(arrays: Sequence[Array]) -> int:
    return sum(np.dtype(array.dtype).itemsize * array.size + 16 for array in arrays) + 16


def _comment(text: str) -> str:
    """Return text that cannot end a comment, by an escape of C99 neither."""
    text = text.replace("\\", "/").replace("??/", "?? /")
    return text.replace("*/", "* /").replace("/*", "/ *")


def _member(array: Array) -> str:
    return f"{array.c_type} {array.expression.removeprefix('p->')}[{max(array.size, 1)}]"


def _constant(array: Array) -> str:
    assert array.value is not None
    name = f"{array.expression}[{max(array.size, 1)}]"
    return f"static const {array.c_type} {name} = {_list(array.value)};"


def _list(values: np.ndarray) -> str:
    """Return the entries of an array as an initializer, each to its last bit."""
    flat, lines, width = values.ravel(), [], 8
    if flat.size == 0:
        return "{0}"
    shown = [_shown(value) for value in flat]
    for start in range(0, len(shown), width):
        lines.append(", ".join(shown[start : start + width]))
    return "{" + ",\n  ".join(lines) + "}"


def _shown(value: Any) -> str:
    if not isinstance(value, np.floating):
        number = int(value)
        # The least one has no literal.
        return f"(-{2**63 - 1}LL - 1)" if number == -(2**63) else str(number)
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    digits, end = (9, "f") if value.dtype == np.float32 else (17, "")
    text = f"{float(value):.{digits}g}"
    return (text if set(text) & set(".e") else text + ".0") + end


def _test(arguments: Sequence[Array], names: Sequence[str], cases: Sequence[Case]) -> str:
    """Return the test of the file by itself: the decisions again, and the slowest of 10,000."""
    *taken, action = arguments
    lines = [f"static const uint8_t restarts[] = {_list(np.array([c.starts for c in cases]))};"]
    for array, name in zip(taken, names, strict=True):
        rows = np.stack([np.asarray(case.inputs[name], array.dtype).ravel() for case in cases])
        lines.append(_table(f"test_{array.expression}", array, rows))
    rows = np.stack([np.asarray(case.action, action.dtype).ravel() for case in cases])
    lines += [_table("expected", action, rows), f"static {action.c_type} got[{action.size}];", ""]
    given = [f"test_{array.expression}[i]" for array in taken]
    call = f"policy_act(&p, {', '.join([*given, 'got'])});"
    return _TEST.format(cases="\n".join(lines), count=len(cases), call=call, width=action.size)


def _table(name: str, array: Array, rows: np.ndarray) -> str:
    text = ",\n ".join(_list(row) for row in rows)
    return f"static const {array.c_type} {name}[{len(rows)}][{array.size}] = {{{text}}};"

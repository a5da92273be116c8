"""The Open Inference Protocol: tensors in JSON or binary, as tritonclient and others send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.serving.decision import Decision
from rlzoo_plus.serving.request_checks import Input, Refused, parsed, text, truth
from rlzoo_plus.serving.served_policy import Arrays, ServedPolicy

HEADER_LENGTH = "inference-header-content-length"
# Rows of a request: they are decided one by one, and others wait meanwhile.
MOST_ROWS = 64
_NAMES = {
    **{"BOOL": "bool", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8"},
    **{"INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8"},
    **{"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"},
}
_OF_DTYPE = {np.dtype(dtype): name for name, dtype in _NAMES.items()}
_MOST_AXES = 8


@dataclass(frozen=True)
class Asked:
    """One request."""

    rows: int
    given: list[Arrays]  # By row
    id: str | None
    sequence: str | None  # Of a policy with state
    starts: bool
    ends: bool
    reward: Any
    outputs: Mapping[str, bool]  # Those that are wanted, and whether in binary


def datatype(port: Input) -> str:
    """Return the protocol's name of the type of an input."""
    return _OF_DTYPE[port.dtype]


def describe(policy: ServedPolicy) -> dict[str, Any]:
    """Return the metadata of a model."""
    inputs, shield = [_described(port) for port in policy.inputs], policy.shield
    return {
        "name": policy.name,
        "versions": [policy.version],
        "platform": "onnx_onnxv1",
        "inputs": inputs,
        "outputs": [
            {"name": name, "datatype": kind, "shape": [-1, *shape]}
            for name, kind, shape in _outputs(policy)
        ],
        "parameters": {
            **{"has_state": policy.has_state, "rate_hz": policy.about["rate_hz"]},
            **({} if shield is None else {"shield": shield.promises, "joints": shield.joints}),
        },
    }


def _outputs(policy: ServedPolicy) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return name, type and shape of what an answer has: with a shield, commands of the joints."""
    kinds = {} if policy.shield is None else policy.shield.outputs
    action = ("action", datatype(policy.action), policy.action.shape)
    return [action, *((kind, "FP64", (len(names),)) for kind, names in kinds.items())]


def _described(port: Input) -> dict[str, Any]:
    return {"name": port.name, "datatype": datatype(port), "shape": [-1, *port.shape]}


def read_request(body: bytes, header_length: str | None, policy: ServedPolicy) -> Asked:
    """Return what a request asks for.

    Raises:
        Refused: Something in it is wrong.
    """
    size = len(body)
    if header_length is not None:
        if not header_length.isdecimal() or len(header_length) > 9 or int(header_length) > size:
            rule = f"no number up to the {size} bytes of the body"
            raise Refused(HEADER_LENGTH, rule, "Send the length of the JSON")
        size = int(header_length)
    head, tail = parsed(body[:size]), memoryview(body)[size:]
    tensors = _tensors(head.get("inputs"), tail, policy)
    rows = {len(array) for array in tensors.values()}
    if len(rows) != 1 or not 0 < max(rows) <= MOST_ROWS:
        fix = f"Send 1 to {MOST_ROWS} observations, as many in each input"
        raise Refused("inputs.shape", f"the first sizes are {sorted(rows)[:4]}", fix)
    (count,) = rows
    parameters = _mapping(head.get("parameters", {}), "parameters")
    sequence, request_id = parameters.get("sequence_id"), head.get("id")
    if isinstance(sequence, int) and not isinstance(sequence, bool):
        sequence = str(sequence)[:64]
    return Asked(
        rows=count,
        given=[{name: array[row] for name, array in tensors.items()} for row in range(count)],
        id=text(request_id, "id", 256) if request_id not in (None, "") else None,
        sequence=text(sequence, "sequence_id") if sequence is not None else None,
        starts=truth(parameters.get("sequence_start", False), "sequence_start"),
        ends=truth(parameters.get("sequence_end", False), "sequence_end"),
        reward=parameters.get("reward"),
        outputs=_wanted(head, parameters, [name for name, _, _ in _outputs(policy)]),
    )


def write_answer(
    policy: ServedPolicy, asked: Asked, decisions: Sequence[Decision]
) -> tuple[bytes, dict[str, str]]:
    """Return the body of the answer, and its headers."""
    outputs, tail, last = [], b"", decisions[-1]
    for name, kind, _ in _outputs(policy):
        if name not in asked.outputs:
            continue
        rows = [_values(one, name) for one in decisions]
        array = np.ascontiguousarray(np.stack(rows), _NAMES[kind])
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(array.shape)}
        if asked.outputs[name]:
            data = array.tobytes()
            output["parameters"] = {"binary_data_size": len(data)}
            tail += data
        else:
            output["data"] = array.ravel().tolist()
        outputs.append(output)
    about = {"session": last.session, "source": last.source, "step": last.step}
    told = {
        "model_name": policy.name,
        "model_version": policy.version,
        **({} if asked.id is None else {"id": asked.id}),
        "parameters": about | {f"shield_{limit}": x for limit, x in last.changes.items()},
        "outputs": outputs,
    }
    head = json.dumps(told, separators=(",", ":")).encode()
    if not tail:
        return head, {"content-type": "application/json"}
    return head + tail, {
        "content-type": "application/octet-stream",
        HEADER_LENGTH: str(len(head)),
    }


def _values(decision: Decision, output: str) -> Any:
    """Return what an answer has of a decision under the name of an output."""
    if output == "action" or decision.commands is None:
        return decision.action
    return list(decision.commands[output].values())


def _tensors(inputs: Any, tail: memoryview, policy: ServedPolicy) -> Arrays:
    if not isinstance(inputs, list):
        raise Refused("inputs", "no list of tensors", "Send [{name, shape, datatype, data}]")
    ports = {port.name: port for port in policy.inputs}
    found: Arrays = {}
    for entry in inputs[: len(ports) + 1]:
        entry = _mapping(entry, "inputs")
        name = entry.get("name")
        if not isinstance(name, str) or name not in ports or name in found:
            rule = "named twice" if name in list(found) else "no such input"
            raise Refused("inputs.name", rule, f"Known: {', '.join(ports)}")
        array, tail = _tensor(entry, tail, f"inputs.{name}")
        found[name] = ports[name].checked(array, f"inputs.{name}", rows=True)
    if missing := [name for name in ports if name not in found]:
        raise Refused(f"inputs.{missing[0]}", "missing", f"Send {', '.join(ports)}")
    if len(tail):
        raise Refused("body", f"{len(tail)} bytes belong to no input", "Check binary_data_size")
    return found


def _tensor(
    entry: Mapping[str, Any], tail: memoryview, field: str
) -> tuple[np.ndarray, memoryview]:
    """Return a tensor, and what is left of the binary data."""
    shape, kind = entry.get("shape"), entry.get("datatype")
    if not isinstance(kind, str) or kind not in _NAMES:
        raise Refused(f"{field}.datatype", "no such type", f"Known: {', '.join(_NAMES)}")
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= _MOST_AXES
        or not all(type(size) is int and 0 <= size < 2**31 for size in shape)
    ):
        raise Refused(f"{field}.shape", "no list of sizes", "Send the sizes, rows first")
    dtype, count = np.dtype(_NAMES[kind]), 1
    for size in shape:
        count *= size
    parameters = _mapping(entry.get("parameters", {}), f"{field}.parameters")
    size = parameters.get("binary_data_size")
    if size is not None:
        if type(size) is not int or size != count * dtype.itemsize or size > len(tail):
            rule = f"not the {count * dtype.itemsize} bytes of this shape, or not in the body"
            raise Refused(f"{field}.parameters.binary_data_size", rule, "Send all bytes")
        array = np.frombuffer(tail[:size], np.uint8 if kind == "BOOL" else dtype)
        return array.astype(dtype).reshape(shape), tail[size:]
    try:
        array = np.asarray(entry.get("data"))
    except (ValueError, OverflowError, TypeError, RecursionError):
        raise Refused(f"{field}.data", "no regular array of numbers", "Send a list") from None
    if array.size != count:
        raise Refused(f"{field}.data", f"{array.size} numbers, and the shape has {count}", "Agree")
    allowed = {"b": "b", "f": "fiu"}.get(dtype.kind, "iu")
    if array.dtype.kind not in allowed:
        raise Refused(f"{field}.data", f"its values are no {kind}", "Send numbers of that type")
    return array.reshape(shape), tail


def _wanted(
    head: Mapping[str, Any], parameters: Mapping[str, Any], known: Sequence[str]
) -> dict[str, bool]:
    """Return the outputs that a request wants, all if it names none, and which in binary."""
    outputs = head.get("outputs", [])
    if not isinstance(outputs, list) or len(outputs) > len(known):
        fix = f"Ask for {', '.join(known)}, or leave it out"
        raise Refused("outputs", f"no list of at most {len(known)} outputs", fix)
    usual = truth(parameters.get("binary_data_output", False), "parameters.binary_data_output")
    found: dict[str, bool] = {}
    for entry in outputs:
        entry = _mapping(entry, "outputs")
        name = entry.get("name")
        if not isinstance(name, str) or name not in known or name in found:
            raise Refused("outputs.name", "no such output", f"Known: {', '.join(known)}")
        wanted = _mapping(entry.get("parameters", {}), "outputs.parameters")
        if wanted.get("classification"):
            raise Refused("outputs.parameters.classification", "not supported", "Leave it out")
        binary = wanted.get("binary_data", usual)
        found[name] = truth(binary, "outputs.parameters.binary_data")
    return found or dict.fromkeys(known, usual)


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Refused(field, "no JSON object", "Send {...}")
    return value

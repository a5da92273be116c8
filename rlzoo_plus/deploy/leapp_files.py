"""The files of NVIDIA's LEAPP for a policy: a YAML and the initial values, written without it.

https://nvidia-isaac.github.io/leapp/, version 0.7.2.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy
import torch
import yaml

from rlzoo_plus.export.signature import Port

CONFIG_VERSION = "1.3"
VERSION = "0.7.2"
NODE = "policy"
KINDS = {
    "joint_position": "target/joint/position",
    "joint_velocity": "target/joint/velocity",
    "joint_torque": "target/joint/torques",
}


def leapp_files(
    name: str,
    model: tuple[str, bytes],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    starts: Mapping[str, np.ndarray],
    names: Mapping[str, Sequence[str]],
) -> dict[str, bytes]:
    """Return the files by name.

    Args:
        name: Of the pipeline.
        model: Name and content of the ONNX file.
        inputs: Its inputs.
        outputs: Its outputs; that which goes round is called as its input, with _out.
        starts: What goes round, at the start of an episode, by input.
        names: Names of the entries of an input or output.
    """
    file, data = model
    turns = {f"{turned}_out": turned for turned in starts}
    pipeline: dict[str, Any] = {
        "data_flow": {},
        "feedback_flow": {f"{NODE}/{out}": [f"{NODE}/{into}"] for out, into in turns.items()},
        "inputs": {NODE: [port.name for port in inputs if port.name not in starts]},
        "outputs": {NODE: [port.name for port in outputs if port.name not in turns]},
    }
    files: dict[str, bytes] = {}
    if starts:
        pipeline["initial_values"] = f"{name}_initial_values.safetensors"
        tensors = {f"{NODE}/{turned}": np.ascontiguousarray(v) for turned, v in starts.items()}
        files[pipeline["initial_values"]] = safetensors.numpy.save(tensors)
    parameters = {
        "model_path": file,
        "md5sum": hashlib.md5(data, usedforsecurity=False).hexdigest(),
        "sha256sum": hashlib.sha256(data).hexdigest(),
        "backend": "onnx",
    }
    node = {
        "inputs": [_described(port, names) for port in inputs],
        "outputs": [_described(port, names) for port in outputs],
        "parameters": parameters,
    }
    system = {
        "leapp version": VERSION,
        "leapp config version": CONFIG_VERSION,
        "os": platform.system(),
        "python version": platform.python_version(),
        "torch version": str(torch.__version__),
        "cuda version": "None",
        "warp version": None,
    }
    whole = {"models": {NODE: node}, "pipeline": pipeline, "system information": system}
    text = yaml.safe_dump(whole, sort_keys=False, width=100)
    return {f"{name}.yaml": text.encode(), **files}


def _described(port: Port, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": port.name,
        "dtype": port.dtype,
        "shape": list(port.sizes(1)),
        "type": "tensor",
    }
    if port.name in KINDS:
        found["kind"] = KINDS[port.name]
    if names.get(port.name):
        found["element_names"] = [list(names[port.name])]
    return found

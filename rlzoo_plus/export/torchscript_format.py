"""The TorchScript file of a policy: written, and run again to check it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import numpy as np
import torch

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph
from rlzoo_plus.export.onnx_format import example_inputs
from rlzoo_plus.export.signature import Signature

FACTS_FILE = "rlzoo_plus.json"


def write_torchscript(graph: PolicyGraph, facts: str) -> bytes:
    """Return the file; `facts`, JSON, lie in it as the extra file `rlzoo_plus.json`.

    Raises:
        ConfigError: The policy cannot be traced.
    """
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # torch prefers torch.export; TorchScript still is what C++ and ROS nodes load.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(graph, example_inputs(graph), check_trace=False)
            torch.jit.save(torch.jit.freeze(traced), buffer, _extra_files={FACTS_FILE: facts})
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"torch cannot trace this policy: {reason}") from error
    return buffer.getvalue()


def torchscript_runner(data: bytes, signature: Signature) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the file: arrays in, by name, to arrays out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(io.BytesIO(data), map_location="cpu")

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        tensors = [torch.from_numpy(inputs[port.name]) for port in signature.inputs]
        with torch.no_grad():
            outputs = module(*tensors)
        return [o.numpy() for o in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run

"""The ONNX and the TorchScript file of a policy: written, and run again to check them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import torch

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph
from rlzoo_plus.export.signature import Signature

# More than one: torch.export takes a size of one for a constant.
EXAMPLE_BATCH = 3
FACTS_FILE = "rlzoo_plus.json"


def check_onnx_is_there() -> None:
    """Check that the packages of the extra are installed.

    Raises:
        ConfigError: One is missing.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"--format onnx needs {name}: pip install 'rlzoo-plus[export]'"
            ) from error


def write_onnx(graph: PolicyGraph, facts: Mapping[str, Any]) -> bytes:
    """Return the file; its batch size is free, and `facts` are its metadata, as text or JSON.

    Raises:
        ConfigError: The extra is missing, or torch cannot translate the policy.
    """
    check_onnx_is_there()
    signature = graph.signature
    batch = torch.export.Dim("batch")
    axes = tuple(
        {axis: batch for axis, size in enumerate(port.shape) if isinstance(size, str)}
        for port in signature.inputs
    )
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                _example_inputs(graph),
                dynamo=True,
                # One entry, since all inputs arrive in one `*inputs`.
                dynamic_shapes=(axes,),
                input_names=[port.name for port in signature.inputs],
                output_names=[port.name for port in signature.outputs],
                external_data=False,
                verbose=False,
            )
    except Exception as error:
        reason = one_line(error)
        raise ConfigError(f"torch cannot translate this policy to ONNX: {reason}.") from error
    assert program is not None
    proto = program.model_proto
    del proto.metadata_props[:]
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        proto.metadata_props.add(key=key, value=text)
    import_module("onnx").checker.check_model(proto)
    return bytes(proto.SerializeToString())


def onnx_runner(data: bytes) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the file: arrays in, by name, to arrays out."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    # The file does not ask for inputs that the network does not read.
    names = [port.name for port in session.get_inputs()]

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        try:
            return list(session.run(None, {name: inputs[name] for name in names}))
        # E.g. where the size of a batch became a constant.
        except Exception as error:
            raise ConfigError(
                f"onnxruntime cannot run the file: {one_line(error)}. --format torchscript may "
                "still work."
            ) from error

    return run


def write_torchscript(graph: PolicyGraph, facts: str) -> bytes:
    """Return the file; it holds `facts`, JSON, as its extra file `rlzoo_plus.json`.

    Raises:
        ConfigError: The policy cannot be traced.
    """
    buffer = io.BytesIO()
    try:
        # torch prefers torch.export; C++ and ROS nodes still load TorchScript.
        with _quiet(), torch.no_grad():
            traced = torch.jit.trace(graph, _example_inputs(graph), check_trace=False)
            torch.jit.save(torch.jit.freeze(traced), buffer, _extra_files={FACTS_FILE: facts})
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"torch cannot trace this policy: {one_line(error)}.") from error
    return buffer.getvalue()


def torchscript_runner(data: bytes, signature: Signature) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the file: arrays in, by name, to arrays out."""
    with _quiet():
        module = torch.jit.load(io.BytesIO(data), map_location="cpu")

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(inputs[port.name]) for port in signature.inputs))
        return [o.numpy() for o in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run


def _example_inputs(graph: PolicyGraph) -> tuple[torch.Tensor, ...]:
    """Return inputs of the right shapes to trace the graph with."""
    arrays = (np.ones(p.sizes(EXAMPLE_BATCH), p.dtype) for p in graph.signature.inputs)
    return tuple(torch.from_numpy(array) for array in arrays)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and reports of progress; errors are raised."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)

"""The ONNX file of a policy: written, and run again to check it."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph

# More than one, since torch.export takes a size of one for a constant.
EXAMPLE_BATCH = 3


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


def write_onnx(graph: PolicyGraph, facts: dict[str, str]) -> bytes:
    """Return the file; its batch size is free, and `facts` are its metadata.

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
                example_inputs(graph),
                dynamo=True,
                # One entry, since all inputs arrive in one `*inputs`.
                dynamic_shapes=(axes,),
                input_names=[port.name for port in signature.inputs],
                output_names=[port.name for port in signature.outputs],
                external_data=False,
                verbose=False,
            )
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"torch cannot translate this policy to ONNX: {reason}") from error
    assert program is not None
    proto = program.model_proto
    del proto.metadata_props[:]
    for key, value in facts.items():
        proto.metadata_props.add(key=key, value=value)
    import_module("onnx").checker.check_model(proto)
    return bytes(proto.SerializeToString())


def onnx_runner(data: bytes) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the file: arrays in, by position, to arrays out."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        try:
            # What the network does not read, the file does not ask for.
            return list(session.run(None, {name: inputs[name] for name in names}))
        # E.g. where the size of a batch became a constant.
        except Exception as error:
            raise ConfigError(
                f"onnxruntime cannot run the file: {one_line(error)}. --format torchscript may "
                "still work."
            ) from error

    return run


def example_inputs(graph: PolicyGraph) -> tuple[torch.Tensor, ...]:
    """Return inputs of the right shapes to trace the graph with."""
    arrays = (np.ones(p.sizes(EXAMPLE_BATCH), p.dtype) for p in graph.signature.inputs)
    return tuple(torch.from_numpy(array) for array in arrays)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch reports of its progress; what goes wrong is raised."""
    loggers: list[Any] = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            with contextlib.redirect_stdout(nowhere):
                yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

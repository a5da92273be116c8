"""A policy as one torch module, raw observation in, action out; its ONNX and TorchScript files.

Normalisation, preprocessing, the actor's network and the final squashing or clipping are inside;
exploration, critics and NumPy are not. The order of operations and their precision are those of
`rlzoo_plus.agents.policy.Policy.predict` with `deterministic=True`.
"""

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
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from torch import Tensor, nn

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.signature import Signature

# More than one: torch.export takes a size of one for a constant.
EXAMPLE_BATCH = 3
# Of torch, without types.
_trace: Any = torch.jit.trace
_load: Any = torch.jit.load
FACTS_FILE = "rlzoo_plus.json"


class PolicyGraph(nn.Module):
    """The whole policy; inputs and outputs are positional, as its signature lists them."""

    low: Tensor
    high: Tensor

    def __init__(self, policy: Policy, signature: Signature) -> None:
        """Take over a policy, or raise ConfigError if no graph can hold it."""
        super().__init__()
        network = policy.network
        if not isinstance(network, BasePolicy):
            raise ConfigError(
                f"a policy of type {type(network).__name__} cannot be exported to a graph: it is "
                "no policy of Stable-Baselines3. Use --format sb3."
            )
        space = network.action_space
        known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
        if not isinstance(space, known):
            raise ConfigError(f"{type(space).__name__} actions cannot be exported.")
        self.signature, self.network = signature, network
        self.inputs = nn.ModuleList(
            _Normalize(policy.normalizer, key) for key in signature.keys or ("",)
        )
        self.shape, self.is_box = tuple(space.shape or ()), isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
            self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))
        self.eval()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the action, and the new state of a recurrent policy."""
        keys, n_parts = self.signature.keys, self.signature.n_observations
        parts = [part(value) for part, value in zip(self.inputs, inputs[:n_parts], strict=True)]
        observation = dict(zip(keys, parts, strict=True)) if keys else parts[0]
        rest = inputs[n_parts:]
        with _without_checks():
            if self.signature.recurrent:
                action, *state = self._step(observation, *rest)
                return self._bounded(action), *state
            masks = {"action_masks": rest[0]} if self.signature.maskable else {}
            return self._bounded(self.network._predict(observation, deterministic=True, **masks))

    def _step(
        self, observation: Any, hidden: Tensor, cell: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step of the actor's LSTM; the start of an episode clears the state.

        `_predict` of the library branches on the starts, which a graph cannot hold.
        """
        network: Any = self.network
        keep = (1.0 - start.float()).reshape(1, -1, 1)
        if hasattr(network, "act"):
            action, after = network.act(observation, (keep * hidden, keep * cell), True)
            return action, *after
        features = network.extract_features(observation, network.pi_features_extractor)
        state = (keep * hidden, keep * cell)
        latent, (hidden, cell) = network.lstm_actor(features.unsqueeze(0), state)
        latent = network.mlp_extractor.forward_actor(latent.squeeze(0))
        distribution = network._get_action_dist_from_latent(latent)
        return distribution.get_actions(deterministic=True), hidden, cell

    def _bounded(self, action: Tensor) -> Tensor:
        """Return an action for `env.step`."""
        action = action.reshape(-1, *self.shape)
        if not self.is_box:
            return action.long()
        if self.network.squash_output:
            action = self.low + (0.5 * (action + 1.0) * (self.high - self.low))
        return torch.minimum(torch.maximum(action, self.low), self.high)


class _Normalize(nn.Module):
    """Normalises one part of the observation, if it has statistics."""

    mean: Tensor
    std: Tensor

    def __init__(self, normalizer: ObservationNormalizer | None, key: str) -> None:
        super().__init__()
        self.clip: float | None = None
        if normalizer is not None and key in normalizer.mean:
            self.clip = normalizer.clip
            std = np.sqrt(normalizer.var[key] + normalizer.epsilon)
            self.register_buffer("mean", torch.as_tensor(normalizer.mean[key], dtype=torch.float64))
            self.register_buffer("std", torch.as_tensor(std, dtype=torch.float64))

    def forward(self, value: Tensor) -> Tensor:
        if self.clip is None:
            return value
        return torch.clamp((value.double() - self.mean) / self.std, -self.clip, self.clip).float()


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """Let distributions check no arguments: these are branches, which a graph cannot hold."""
    checks = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checks)


def check_onnx_is_there() -> None:
    """Raise ConfigError if a package of the extra is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"--format onnx needs {name}: pip install 'rlzoo-plus[export]'"
            ) from error


def write_onnx(graph: PolicyGraph, facts: Mapping[str, Any], batch: int | None = None) -> bytes:
    """Return the file.

    Args:
        graph: The policy.
        facts: Its metadata, as text or JSON.
        batch: How many observations it takes; any number if None.

    Raises:
        ConfigError: The extra is missing, or torch cannot translate the policy.
    """
    check_onnx_is_there()
    signature = graph.signature
    free = torch.export.Dim("batch")
    axes = tuple(
        {axis: free for axis, size in enumerate(port.shape) if isinstance(size, str)}
        for port in signature.inputs
    )
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                _example_inputs(graph, batch or EXAMPLE_BATCH),
                dynamo=True,
                # One entry, since all inputs arrive in one `*inputs`.
                dynamic_shapes=None if batch else (axes,),
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
            traced = _trace(graph, _example_inputs(graph, EXAMPLE_BATCH), check_trace=False)
            torch.jit.save(torch.jit.freeze(traced), buffer, _extra_files={FACTS_FILE: facts})
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"torch cannot trace this policy: {one_line(error)}.") from error
    return buffer.getvalue()


def torchscript_runner(data: bytes, signature: Signature) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs the file: arrays in, by name, to arrays out."""
    with _quiet():
        module = _load(io.BytesIO(data), map_location="cpu")

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(inputs[port.name]) for port in signature.inputs))
        return [o.numpy() for o in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run


def _example_inputs(graph: PolicyGraph, batch: int) -> tuple[torch.Tensor, ...]:
    """Return inputs of the right shapes to trace the graph with."""
    arrays = (np.ones(p.sizes(batch), p.dtype) for p in graph.signature.inputs)
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

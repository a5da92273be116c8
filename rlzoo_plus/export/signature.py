"""What goes into an exported policy and what comes out: names, types, shapes, units."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy

BATCH = "batch"
STATE_NAMES = ("lstm_h", "lstm_c")
_RESERVED = (*STATE_NAMES, "episode_start", "action_masks")
_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class Port:
    """One input or output.

    Attributes:
        name: Its name in the file.
        dtype: Its NumPy type.
        shape: Its sizes; `batch` stands for any number.
        meaning: What it holds, for people.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    meaning: str

    def sizes(self, batch: int) -> tuple[int, ...]:
        """Return the shape for a batch of this size."""
        return tuple(batch if isinstance(size, str) else size for size in self.shape)


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of an exported policy, in their order.

    Attributes:
        keys: Keys of a dictionary observation in the order of the inputs; empty for a flat one.
        inputs: The observation's parts first, then state, episode start and masks.
        outputs: The action, then the new state.
        recurrent: Whether a state goes in and out.
        maskable: Whether masks go in.
    """

    keys: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    recurrent: bool
    maskable: bool

    @property
    def n_observations(self) -> int:
        """Number of inputs that make up the observation."""
        return max(1, len(self.keys))


def make_signature(policy: Policy) -> Signature:
    """Describe a policy's inputs and outputs.

    Raises:
        ConfigError: Observations or actions are of a kind that no exported graph can hold.
    """
    space = policy.network.observation_space
    is_dict = isinstance(space, spaces.Dict)
    keys = tuple(space.spaces) if is_dict else ()
    inputs = [_observation_port(policy, key) for key in keys or ("",)]
    outputs = [_action_port(policy.network.action_space)]
    lstm = getattr(policy.network, "lstm_actor", None)
    if lstm is not None:
        shape = (lstm.num_layers, BATCH, lstm.hidden_size)
        zero = "zeros at first, then the last call's output of this name with _out"
        inputs += [Port(name, "float32", shape, zero) for name in STATE_NAMES]
        inputs.append(Port("episode_start", "bool", (BATCH,), "true clears the state first"))
        outputs += [
            Port(f"{name}_out", "float32", shape, "the next call's input") for name in STATE_NAMES
        ]
    if policy.maskable:
        size = _mask_size(policy.network.action_space)
        inputs.append(Port("action_masks", "bool", (BATCH, size), "true where allowed"))
    return Signature(keys, tuple(inputs), tuple(outputs), lstm is not None, policy.maskable)


def metadata(signature: Signature, policy: Policy, about: dict[str, Any]) -> dict[str, str]:
    """Return all that a user of the file must know, as text by name."""
    normalizer = policy.normalizer
    normalization = (
        {"applied_inside": False}
        if normalizer is None
        else {
            "applied_inside": True,
            "inputs": [key or "observation" for key in normalizer.mean],
            "rule": "clip((x - mean) / sqrt(var + epsilon), -clip, clip) in float64",
            "clip": normalizer.clip,
            "epsilon": normalizer.epsilon,
        }
    )
    ports = {
        "inputs": [vars(port) for port in signature.inputs],
        "outputs": [vars(port) for port in signature.outputs],
    }
    data = {**about, **ports, "action": _units(policy.network.action_space)}
    data["normalization"] = normalization
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in data.items()}


def _observation_port(policy: Policy, key: str) -> Port:
    space = policy.network.observation_space
    space = space[key] if key else space
    name = f"observation_{key}" if key in _RESERVED else key or "observation"
    shape = (BATCH, *(space.shape or ()))
    if isinstance(space, spaces.Box):
        normalized = policy.normalizer is not None and key in policy.normalizer.mean
        what = "image, channels first" if len(space.shape) == 3 else "as the environment gives it"
        return Port(name, _dtype(space.dtype, normalized), shape, f"raw observation, {what}")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return Port(name, "int64", shape, f"raw observation of {space}")
    raise ConfigError(f"{type(space).__name__} observations cannot be exported.")


def _dtype(dtype: np.dtype, normalized: bool) -> str:
    # A double is rounded by the policy too, but only after normalisation.
    if dtype == np.float64 and normalized:
        return "float64"
    return str(dtype) if str(dtype) in _INTEGERS else "float32"


def _action_port(space: spaces.Space) -> Port:
    shape = (BATCH, *(space.shape or ()))
    if isinstance(space, spaces.Box):
        return Port("action", "float32", shape, "within the action space's bounds")
    return Port("action", "int64", shape, f"index of the action, {space}")


def _units(space: spaces.Space) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        # JSON knows no infinity.
        text = json.loads(json.dumps(bounds), parse_constant=str)
        return {"kind": "box", **text, "units": "the environment's own, ready for env.step"}
    return {"kind": type(space).__name__, "space": str(space), "units": "index, for env.step"}


def _mask_size(space: spaces.Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 2 * int(np.prod(space.shape))

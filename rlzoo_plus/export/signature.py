"""What goes into an exported policy and what comes out: names, types, shapes, units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

BATCH = "batch"
STATE_NAMES = ("lstm_h", "lstm_c")
_RESERVED = (*STATE_NAMES, "episode_start", "action_masks")
_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class Port:
    """One input or output."""

    name: str  # Its name in the file
    dtype: str  # Its NumPy type
    shape: tuple[int | str, ...]  # Its sizes; `batch` stands for any number
    meaning: str  # What it holds, as text for the user

    def sizes(self, batch: int) -> tuple[int, ...]:
        """Return the shape for a batch of this size."""
        return tuple(batch if isinstance(size, str) else size for size in self.shape)


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of an exported policy, in their order."""

    keys: tuple[str, ...]  # Of a dictionary observation, in the order of the inputs
    inputs: tuple[Port, ...]  # The observation's parts first, then state, episode start and masks
    outputs: tuple[Port, ...]  # The action, then the new state
    recurrent: bool  # Whether a state goes in and out
    maskable: bool  # Whether masks go in

    @property
    def n_observations(self) -> int:
        """Number of inputs that make up the observation."""
        return max(1, len(self.keys))

    @property
    def observations(self) -> tuple[Port, ...]:
        """The inputs that make up the observation."""
        return self.inputs[: self.n_observations]

    def predict(
        self, predict: Callable[..., Any], inputs: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Call a `predict` of a policy or an algorithm with named inputs; return the outputs."""
        values = [inputs[port.name] for port in self.observations]
        observation = dict(zip(self.keys, values, strict=True)) if self.keys else values[0]
        state = tuple(inputs[name] for name in STATE_NAMES) if self.recurrent else None
        masks = {"action_masks": inputs["action_masks"]} if self.maskable else {}
        action, state = predict(observation, state, inputs["episode_start"], True, **masks)
        return [action, *(state if self.recurrent and state is not None else ())]


def make_signature(policy: Policy) -> Signature:
    """Describe a policy's inputs and outputs.

    Raises:
        ConfigError: Observations or actions are of a kind that no exported graph can hold.
    """
    space, actions = policy.observation_space, policy.network.action_space
    keys = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
    inputs = [_observation_port(policy, key) for key in keys or ("",)]
    shape: tuple[int | str, ...] = (BATCH, *(actions.shape or ()))
    if isinstance(actions, spaces.Box):
        outputs = [Port("action", "float32", shape, "within the action space's bounds")]
    else:
        outputs = [Port("action", "int64", shape, f"index of the action, {actions}")]
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
        # A binary choice has a mask for no and one for yes.
        size = spaces.flatdim(actions) * (2 if isinstance(actions, spaces.MultiBinary) else 1)
        inputs.append(Port("action_masks", "bool", (BATCH, int(size)), "true where allowed"))
    return Signature(keys, tuple(inputs), tuple(outputs), lstm is not None, policy.maskable)


def metadata(signature: Signature, policy: Policy, about: dict[str, Any]) -> dict[str, Any]:
    """Return all that a user of the file must know, as plain data by name."""
    normalizer, space = policy.normalizer, policy.network.action_space
    normalization: dict[str, Any] = {"applied_inside": normalizer is not None}
    if normalizer is not None:
        parts = parts_of(policy.observation_space)
        normalization |= {
            "inputs": [k or "observation" for k in normalizer.mean if k in parts],
            "rule": "clip((x - mean) / sqrt(var + epsilon), -clip, clip) in float64",
            "clip": normalizer.clip,
            "epsilon": normalizer.epsilon,
        }
    if isinstance(space, spaces.Box):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        # JSON knows no infinity.
        text = json.loads(json.dumps(bounds), parse_constant=str)
        action = {"kind": "box", **text, "units": "the environment's own, ready for env.step"}
    else:
        kind = type(space).__name__
        action = {"kind": kind, "space": str(space), "units": "index, for env.step"}
    return {
        **about,
        "inputs": [vars(port) for port in signature.inputs],
        "outputs": [vars(port) for port in signature.outputs],
        "action": action,
        "normalization": normalization,
    }


def _observation_port(policy: Policy, key: str) -> Port:
    whole = policy.observation_space
    space = whole[key] if isinstance(whole, spaces.Dict) else whole
    name = f"observation_{key}" if key in _RESERVED else key or "observation"
    shape: tuple[int | str, ...] = (BATCH, *(space.shape or ()))
    if isinstance(space, spaces.Box):
        # The policy rounds a double too, but only after normalisation.
        is_normalized = policy.normalizer is not None and key in policy.normalizer.mean
        kept = (*_INTEGERS, "float64") if is_normalized else _INTEGERS
        dtype = str(space.dtype) if str(space.dtype) in kept else "float32"
        what = "image, channels first" if len(space.shape) == 3 else "as the environment gives it"
        return Port(name, dtype, shape, f"raw observation, {what}")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return Port(name, "int64", shape, f"raw observation of {space}")
    raise ConfigError(f"{type(space).__name__} observations cannot be exported.")

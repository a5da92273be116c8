"""A reward model: an ensemble of small networks over observation and action, and its folder.

The folder holds JSON and safetensors with their hashes. It acts with NumPy alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.atomic import DamagedFolderError, read_about, read_folder, write_folder
from rlzoo_plus.artifacts.tree import STATE_FILE, TENSOR_FILE, pack, unpack
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.reward_inputs import RewardInputs

KIND = "rlzoo_plus reward model"
MOST_MEMBERS, _WIDEST = 32, 4096
_LARGEST = {STATE_FILE: 2**22, TENSOR_FILE: 2**28}
# Normalized inputs are cut here: further away, the networks have seen nothing.
CUT = 5.0
SLOPE = 0.01
Layer = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class RewardModel:
    """An ensemble of rewards; that of a step is the mean of its members."""

    inputs: RewardInputs
    mean: np.ndarray  # Of a row of inputs over the clips, shape (size,)
    std: np.ndarray  # The same way; 1 where nothing varies
    scale: float  # What outputs are multiplied by: over the clips, rewards are about 1 in size
    # `observation`, then `both` with the action, then `reward`: of each layer the weight, shape
    # (n_members, n_in, n_out), and the bias, shape (n_members, 1, n_out)
    layers: Sequence[Layer]
    about: Mapping[str, Any]  # How it was fitted: numbers and texts

    def members(self, rows: np.ndarray) -> np.ndarray:
        """Return the rewards that each member gives to rows of inputs, shape (n_members, n)."""
        normal = np.clip((rows - self.mean) / self.std, -CUT, CUT)
        seen, action = np.split(normal, [self.inputs.observed], axis=1)
        hidden = _layer(seen, self.layers[0])
        both = [hidden, np.broadcast_to(action, (*hidden.shape[:2], action.shape[1]))]
        weight, bias = self.layers[2]
        outputs = np.matmul(_layer(np.concatenate(both, axis=2), self.layers[1]), weight) + bias
        rewards: np.ndarray = np.tanh(outputs[..., 0]) * self.scale
        return rewards

    def require_fit(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        """Check that it was learned in a task.

        Raises:
            ConfigError: It was learned from other observations or actions.
        """
        there = RewardInputs(observation, action)
        for what in ("observation", "action"):
            own, wanted = getattr(self.inputs, what), getattr(there, what)
            if own != wanted:
                raise ConfigError(
                    f"the reward model is of another task: its {what} is {printable(own)}, and "
                    f"that of the environment {printable(wanted)}. Use the environment and the "
                    "wrappers that its clips were recorded in."
                )


def _layer(inputs: np.ndarray, layer: Layer) -> np.ndarray:
    linear = np.matmul(inputs, layer[0]) + layer[1]
    hidden: np.ndarray = np.maximum(linear, SLOPE * linear)
    return hidden


def save_reward_model(path: Path, model: RewardModel) -> None:
    """Write a model to a folder, in one step; an older model there is replaced.

    Raises:
        ConfigError: The folder holds something else, or cannot be written.
    """
    try:
        is_ours = not path.exists() or read_about(path).get("kind") == KIND
    except DamagedFolderError:
        is_ours = path.is_dir() and not any(path.iterdir())
    if not is_ours:
        raise ConfigError(f"{printable(path)} holds something else already. Name a new folder.")
    state = {
        "spaces": model.inputs.data,
        "mean": model.mean,
        "std": model.std,
        "scale": model.scale,
        "layers": [list(layer) for layer in model.layers],
    }
    try:
        write_folder(path, pack(state), {"kind": KIND, **model.about})
    except OSError as error:
        raise ConfigError(f"{printable(path)} cannot be written: {error.strerror}.") from error


def load_reward_model(path: Path) -> tuple[RewardModel, str]:
    """Read a model; return it and the hash of its content.

    Raises:
        ConfigError: It is damaged, too large, or no reward model.
    """
    try:
        files, about = read_folder(path, _LARGEST)
        if about.get("kind") != KIND:
            raise ValueError("it is no reward model")
        model = _model_of(unpack(files), about)
    except (
        *(DamagedFolderError, OSError, ValueError, LookupError, TypeError, AttributeError),
    ) as error:
        raise ConfigError(
            f"{printable(path)} holds no reward model that can be used: {one_line(error)}. Fit one "
            "with rlzoo-plus prefer FOLDER --fit MODEL."
        ) from error
    content = files[STATE_FILE] + files[TENSOR_FILE]
    return model, hashlib.sha256(content).hexdigest()


def _model_of(state: Any, about: Mapping[str, Any]) -> RewardModel:
    """Return the model of a stored state; raise a ValueError if it could not act."""
    inputs, scale = RewardInputs.from_data(state["spaces"]), state["scale"]
    mean, std = state["mean"], state["std"]
    layers = [(weight, bias) for weight, bias in state["layers"]]
    if type(scale) is not float or not 1e-6 <= scale <= 1e6:
        raise ValueError(f"its scale is {printable(scale, 40)}")
    for array in (mean, std, *(part for layer in layers for part in layer)):
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError("a number in it is NaN, infinite or of another type")
    if mean.shape != (inputs.size,) or std.shape != mean.shape or std.min() < 1e-6:
        raise ValueError("its statistics do not fit its inputs")
    n_members, _, n_seen = layers[0][0].shape
    n_both = layers[1][0].shape[2]
    if not 1 <= n_members <= MOST_MEMBERS or max(n_seen, n_both) > _WIDEST:
        raise ValueError(f"it has {n_members} members of {n_seen} and {n_both} units")
    actions = inputs.size - inputs.observed
    widths = (inputs.observed, n_seen), (n_seen + actions, n_both), (n_both, 1)
    for (weight, bias), (n_in, n_out) in zip(layers, widths, strict=True):
        if weight.shape != (n_members, n_in, n_out) or bias.shape != (n_members, 1, n_out):
            raise ValueError(f"a layer is of shape {weight.shape} and {bias.shape}")
    return RewardModel(inputs, mean, std, scale, layers, about)

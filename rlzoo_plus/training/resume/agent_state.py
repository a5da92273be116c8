"""An agent's state as plain data with arrays: captured for a checkpoint, and restored.

It is captured at the top of an iteration (see `agents.hooks`), where it is complete: networks and
targets, optimizers, counters, last observations, exploration noise, pending log values and every
random number generator. For the replay buffer see `replay_rows`, for environments `env_state`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from rlzoo_plus.envs.plain_state import (
    fitted,
    in_layout,
    is_plain,
    layout_of,
    replace_attributes,
    tensors_of,
    to_plain,
)

_OBSERVATIONS = ("_last_obs", "_last_original_obs")
# Timings, the arguments of a command, or of this process alone.
_NOT_STATE = {
    *("start_time", "verbose", "tensorboard_log", "log_every", "_custom_logger"),
    *("policy_kwargs", "replay_buffer_kwargs", "rollout_buffer_kwargs"),
    *("before_iteration", "resume_from", "_total_timesteps", "_num_timesteps_at_start"),
    *("recorded", "rollouts", "trusted_code_token", "held"),
}


def parts_of(agent: BaseAlgorithm) -> dict[str, Any]:
    """Return the attributes that are not plain data (networks, schedules, buffers); others as None.

    A checkpoint does not hold those objects: a resumed run builds them from its configuration.
    """
    return {name: None if is_plain(value) else value for name, value in vars(agent).items()}


def replaced_parts(agent: BaseAlgorithm, parts: dict[str, Any]) -> list[str]:
    """Return the attributes that have been set to another object since `parts_of`."""
    now, held = vars(agent), {*_NOT_STATE, *getattr(agent, "in_parameters", ())}
    return [
        name
        for name, before in parts.items()
        if name not in held
        and not (now.get(name) is before or (before is None and is_plain(now.get(name))))
    ]


def capture(agent: BaseAlgorithm, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the agent's state; nothing in it shares memory with the agent.

    Args:
        agent: The agent.
        without: Attributes to leave out, of `replaced_parts`.
    """
    _, tensor_names = agent._get_torch_save_params()
    # Figures and texts that wait for the next dump of the log are left out.
    logged = [name for name, value in agent.logger.name_to_value.items() if is_plain(value)]
    version, key, gauss = random.getstate()
    cuda = [torch.cuda.get_rng_state(agent.device)] if agent.device.type == "cuda" else []
    return {
        "parameters": to_plain(agent.get_parameters()),
        "tensors": {name: to_plain(attrgetter(name)(agent)) for name in tensor_names},
        "attributes": {
            name: to_plain(value)
            for name, value in vars(agent).items()
            if name not in {*_NOT_STATE, *tensor_names, *without} and is_plain(value)
        },
        "layouts": {name: layout_of(getattr(agent, name, None)) for name in _OBSERVATIONS},
        "noise": _noise_state(getattr(agent, "action_noise", None)),
        "logger": {
            "values": {name: to_plain(agent.logger.name_to_value[name]) for name in logged},
            "counts": {name: agent.logger.name_to_count.get(name, 0) for name in logged},
            "excluded": {name: list(agent.logger.name_to_excluded[name]) for name in logged},
        },
        "random": {
            "python": (version, np.array(key, np.uint64), gauss),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state().numpy().copy(),
            "cuda": [part.numpy().copy() for part in cuda],
            "actions": agent.action_space.np_random.bit_generator.state,
        },
    }


def restore(agent: BaseAlgorithm, state: dict[str, Any], changed: Collection[str] = ()) -> None:
    """Restore the state of a freshly built agent, the random number generators last.

    Args:
        agent: Built from the present configuration.
        state: From `capture`.
        changed: Hyperparameters that were changed since; they stay as configured.
    """
    restore_parameters(agent, state, changed)
    attributes = {k: v for k, v in state["attributes"].items() if k not in changed}
    restore_attributes(agent, attributes)
    for name in _OBSERVATIONS:
        layout = state.get("layouts", {}).get(name)
        if layout is not None:
            setattr(agent, name, in_layout(getattr(agent, name), layout))
    if "action_noise" not in changed:
        _restore_noise(getattr(agent, "action_noise", None), state["noise"])
    values, counts, excluded = (state["logger"][k] for k in ("values", "counts", "excluded"))
    if not values.keys() == counts.keys() == excluded.keys():
        raise ValueError("the values that wait to be logged are incomplete")
    if not all(map(_is_number, [*values.values(), *counts.values()])):
        raise ValueError("a value that waits to be logged is not a number")
    agent.logger.name_to_value = defaultdict(float, values)
    agent.logger.name_to_count = defaultdict(int, counts)
    agent.logger.name_to_excluded = {name: tuple(map(str, v)) for name, v in excluded.items()}
    restore_random(agent, state["random"])


def restore_attributes(agent: BaseAlgorithm, attributes: dict[str, Any]) -> None:
    """Restore counters, last observations and the like.

    Raises:
        ValueError: They do not fit the agent.
    """
    _, tensor_names = agent._get_torch_save_params()
    # An empty `held` is in checkpoints of earlier versions.
    values = {name: value for name, value in attributes.items() if name != "held"}
    replace_attributes(agent, values, {*_NOT_STATE, *tensor_names})
    for buffer in (agent.ep_info_buffer, agent.ep_success_buffer):
        for item in buffer or ():
            if not all(map(_is_number, item.values() if isinstance(item, dict) else [item])):
                raise ValueError("the statistics of the last episodes are not numbers")


def restore_parameters(
    agent: BaseAlgorithm, state: dict[str, Any], changed: Collection[str] = ()
) -> None:
    """Restore networks, optimizers and learned tensors, e.g. from an older checkpoint.

    The tensor of a changed hyperparameter, as that of a fixed `ent_coef`, stays as configured.

    Raises:
        ValueError: They do not fit the agent.
    """
    saved = state["parameters"]
    _check_optimizers(agent, saved)
    agent.set_parameters(tensors_of(saved), exact_match=True, device=agent.device)
    tensors = state["tensors"].items()
    _restore_tensors(agent, {k: v for k, v in tensors if k.removesuffix("_tensor") not in changed})


def take_over_optimizers(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Copy the averages of another agent's optimizers, and its learned tensors, to an agent.

    The optimizers keep the settings of the agent.

    Raises:
        ValueError: They do not fit the agent.
    """
    saved = state["parameters"]
    if hasattr(agent, "take_over_optimizers"):
        agent.take_over_optimizers(saved)
        return
    own = _check_optimizers(agent, saved, keeps_settings=True)
    _restore_tensors(agent, state["tensors"])
    for name, part in own.items():
        values = {**part, "state": saved[name]["state"]}
        attrgetter(name)(agent).load_state_dict(tensors_of(values))


def _restore_tensors(agent: BaseAlgorithm, tensors: dict[str, Any]) -> None:
    _, known = agent._get_torch_save_params()
    for name, value in tensors.items():
        if name not in known:
            raise ValueError(f"{name} is not a learned tensor")
        target = attrgetter(name)(agent)
        target.data.copy_(fitted(target.data, value, name))


def _check_optimizers(
    agent: BaseAlgorithm, saved: dict[str, Any], *, keeps_settings: bool = False
) -> dict[str, Any]:
    """Return the states of an agent's optimizers, after a check that the saved ones fit.

    torch itself checks the number of tensors only. An agent that keeps its settings takes over from
    older versions of torch, whose optimizers have fewer.
    """
    own: dict[str, Any] = {
        name: part for name, part in agent.get_parameters().items() if "param_groups" in part
    }
    if not own.keys() <= saved.keys():
        raise ValueError(f"it has no {' and no '.join(own.keys() - saved.keys())}")
    for name, part in own.items():
        for old, new in zip(saved[name]["param_groups"], part["param_groups"], strict=True):
            extra = new.keys() - old.keys()
            if not old.keys() <= new.keys() or (extra and not keeps_settings):
                raise ValueError("an optimizer has other settings")
            own_part, states = old["params"][: len(new["params"])], saved[name]["state"].keys()
            # DQN's optimizer once held the target network too, which has no averages.
            is_longer = keeps_settings and states <= {*new["params"]}
            if new["params"] != (own_part if is_longer else old["params"]):
                here, there = len(new["params"]), len(old["params"])
                raise ValueError(f"{name} is of {there} parameters there, of {here} here")
            for key in old:
                fitted(new[key], old[key], f"the optimizer's {key}")
        groups: Any = attrgetter(name)(agent).param_groups
        shapes = [tuple(parameter.shape) for group in groups for parameter in group["params"]]
        state: dict[int, dict[str, Any]] = saved[name]["state"]
        for number, entry in state.items():
            for key, value in entry.items():
                is_array = isinstance(value, np.ndarray)
                if is_array and value.size > 1 and value.shape != shapes[number]:
                    raise ValueError(f"the optimizer's {key} has another shape than its parameter")
                if not is_array and value is not None and not _is_number(value):
                    raise ValueError(f"the optimizer's {key} is not a number")
    return own


def restore_random(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Restore the generators of Python, NumPy, torch and the action space."""
    version, key, gauss = state["python"]
    random.setstate((version, tuple(key.tolist()), gauss))
    # NumPy itself would read beyond the generator's memory.
    generator: Any = np.random.get_state()
    if not 0 <= int(state["numpy"][2]) <= len(generator[1]):
        raise ValueError("the position of NumPy's generator is out of range")
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    # Only the agent's own device: another machine may have fewer.
    if agent.device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(torch.from_numpy(state["cuda"][0]), agent.device)
    agent.action_space.np_random.bit_generator.state = state["actions"]


def _noise_state(noise: Any) -> Any:
    if noise is None:
        return None
    if hasattr(noise, "noises"):
        return [_noise_state(part) for part in noise.noises]
    return {name: to_plain(value) for name, value in vars(noise).items() if is_plain(value)}


def _restore_noise(noise: Any, state: Any) -> None:
    if noise is None or state is None:
        return
    if hasattr(noise, "noises"):
        for part, values in zip(noise.noises, state, strict=True):
            _restore_noise(part, values)
    else:
        replace_attributes(noise, state)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.size == 1
    return isinstance(value, (int, float, np.number, np.bool_))

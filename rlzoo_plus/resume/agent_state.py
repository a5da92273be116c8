"""An agent's state as plain data with arrays, for checkpoints: taken out, and put back.

Taken at the top of an iteration (see `agents.hooks`), where it is complete: networks and targets,
optimizers, counters, last observations, exploration noise, pending log values and every random
number generator. The replay buffer (`replay_rows`) and the environments (`env_state`) are apart.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.resume.plain import (
    fitted,
    in_layout,
    is_plain,
    layout_of,
    replace_attributes,
    tensors_of,
    to_plain,
)

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.logger import Logger

_OBSERVATIONS = ("_last_obs", "_last_original_obs")
# Of the clock, of the command that started the process, or of this process alone.
_NOT_STATE = {
    "start_time",
    "verbose",
    "tensorboard_log",
    "policy_kwargs",
    "replay_buffer_kwargs",
    "rollout_buffer_kwargs",
    "before_iteration",
    "resume_from",
    "log_every",
    "_custom_logger",
    "_total_timesteps",
    "_num_timesteps_at_start",
}


def parts_of(agent: BaseAlgorithm) -> dict[str, Any]:
    """Return the attributes that are no plain data: networks, schedules, buffers; None for others.

    A checkpoint does not hold them as such: a resumed run builds them anew from its configuration.
    """
    return {name: None if is_plain(value) else value for name, value in vars(agent).items()}


def replaced_parts(agent: BaseAlgorithm, parts: dict[str, Any]) -> list[str]:
    """Return the attributes that somebody has set to another object since `parts_of`."""
    now = vars(agent)
    return [
        name
        for name, before in parts.items()
        if name not in _NOT_STATE
        and not (now.get(name) is before or (before is None and is_plain(now.get(name))))
    ]


def capture(agent: BaseAlgorithm, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the agent's state; nothing in it shares memory with the agent.

    Args:
        agent: The agent.
        without: Attributes to leave out, of `replaced_parts`.
    """
    _, tensor_names = agent._get_torch_save_params()
    return {
        "parameters": to_plain(agent.get_parameters()),
        "tensors": {name: to_plain(_reach(agent, name)) for name in tensor_names},
        "attributes": {
            name: to_plain(value)
            for name, value in vars(agent).items()
            if name not in {*_NOT_STATE, *tensor_names, *without} and is_plain(value)
        },
        "layouts": {name: layout_of(getattr(agent, name, None)) for name in _OBSERVATIONS},
        "noise": _noise_state(getattr(agent, "action_noise", None)),
        "logger": _logger_state(agent.logger),
        "random": _random_state(agent),
    }


def restore(agent: BaseAlgorithm, state: dict[str, Any], changed: Collection[str] = ()) -> None:
    """Put a state back into a freshly built agent, the random number generators last.

    Args:
        agent: Built from the configuration of now.
        state: From `capture`.
        changed: Hyperparameters that were changed since; they stay as they are configured.
    """
    restore_parameters(agent, state)
    attributes = {k: v for k, v in state["attributes"].items() if k not in changed}
    restore_attributes(agent, attributes)
    for name in _OBSERVATIONS:
        layout = state.get("layouts", {}).get(name)
        if layout is not None:
            setattr(agent, name, in_layout(getattr(agent, name), layout))
    _restore_noise(getattr(agent, "action_noise", None), state["noise"])
    _restore_logger(agent.logger, state["logger"])
    restore_random(agent, state["random"])


def restore_attributes(agent: BaseAlgorithm, attributes: dict[str, Any]) -> None:
    """Put counters, last observations and the like back.

    Raises:
        ValueError: They are not those of such an agent.
    """
    _, tensor_names = agent._get_torch_save_params()
    replace_attributes(agent, attributes, {*_NOT_STATE, *tensor_names})
    for buffer in (agent.ep_info_buffer, agent.ep_success_buffer):
        for item in buffer or ():
            if not all(map(_is_number, item.values() if isinstance(item, dict) else [item])):
                raise ValueError("the statistics of the last episodes are no numbers")


def restore_parameters(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Put networks, optimizers and learned tensors back, e.g. from an older checkpoint.

    Raises:
        ValueError: They are not those of such an agent.
    """
    saved, current = state["parameters"], agent.get_parameters()
    for name, part in current.items():
        if "param_groups" in part:
            _check_optimizer(saved[name], part, _reach(agent, name))
    agent.set_parameters(tensors_of(saved), exact_match=True, device=agent.device)
    _restore_tensors(agent, state["tensors"])


def take_over_optimizers(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Give an agent the averages of another one's optimizers, and its learned tensors.

    The optimizers' settings stay those of the agent.

    Raises:
        ValueError: They are not those of such an agent.
    """
    own = {k: v for k, v in agent.get_parameters().items() if "param_groups" in v}
    saved = state["parameters"]
    if not own.keys() <= saved.keys():
        raise ValueError(f"it has no {' and no '.join(own.keys() - saved.keys())}")
    for name, part in own.items():
        _check_optimizer(saved[name], part, _reach(agent, name))
    _restore_tensors(agent, state["tensors"])
    for name, part in own.items():
        values = {**part, "state": saved[name]["state"]}
        _reach(agent, name).load_state_dict(tensors_of(values))


def _restore_tensors(agent: BaseAlgorithm, tensors: dict[str, Any]) -> None:
    _, known = agent._get_torch_save_params()
    for name, value in tensors.items():
        if name not in known:
            raise ValueError(f"{name} is no learned tensor")
        target = _reach(agent, name)
        target.data.copy_(fitted(target.data, value, name))


def _check_optimizer(saved: dict[str, Any], current: dict[str, Any], optimizer: Any) -> None:
    """Check an optimizer's state, of which torch itself looks at the number of tensors only."""
    for old, new in zip(saved["param_groups"], current["param_groups"], strict=True):
        if old.keys() != new.keys() or old["params"] != new["params"]:
            raise ValueError("an optimizer has other settings")
        for key, value in new.items():
            fitted(value, old[key], f"the optimizer's {key}")
    shapes = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    for number, entry in saved["state"].items():
        for key, value in entry.items():
            if isinstance(value, np.ndarray) and value.size > 1 and value.shape != shapes[number]:
                raise ValueError(f"the optimizer's {key} has another shape than its parameter")
            if not isinstance(value, np.ndarray) and value is not None and not _is_number(value):
                raise ValueError(f"the optimizer's {key} is no number")


def restore_random(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Set Python's, NumPy's, torch's and the action space's generators."""
    import torch

    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    # NumPy itself would read beyond the generator's memory.
    if not 0 <= int(state["numpy"][2]) <= len(np.random.get_state()[1]):
        raise ValueError("NumPy's generator is at no position of it")
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    # The agent's own device alone: another machine may have fewer of them.
    if agent.device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(torch.from_numpy(state["cuda"][0]), agent.device)
    agent.action_space.np_random.bit_generator.state = state["actions"]


def _random_state(agent: BaseAlgorithm) -> dict[str, Any]:
    import torch

    cuda = [torch.cuda.get_rng_state(agent.device)] if agent.device.type == "cuda" else []
    version, words, gauss = random.getstate()
    return {
        "python": (version, np.array(words, np.uint64), gauss),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy().copy(),
        "cuda": [part.numpy().copy() for part in cuda],
        "actions": agent.action_space.np_random.bit_generator.state,
    }


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


def _logger_state(logger: Logger) -> dict[str, Any]:
    """Return the values that wait for the next dump; figures and texts among them are left out."""
    names = [name for name, value in logger.name_to_value.items() if is_plain(value)]
    return {
        "values": {name: to_plain(logger.name_to_value[name]) for name in names},
        "counts": {name: logger.name_to_count.get(name, 0) for name in names},
        "excluded": {name: list(logger.name_to_excluded[name]) for name in names},
    }


def _restore_logger(logger: Logger, state: dict[str, Any]) -> None:
    values, counts, excluded = state["values"], state["counts"], state["excluded"]
    if not values.keys() == counts.keys() == excluded.keys():
        raise ValueError("the values that wait to be logged are incomplete")
    if not all(map(_is_number, [*values.values(), *counts.values()])):
        raise ValueError("a value that waits to be logged is no number")
    logger.name_to_value = defaultdict(float, values)
    logger.name_to_count = defaultdict(int, counts)
    logger.name_to_excluded = {name: tuple(map(str, v)) for name, v in excluded.items()}


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.size == 1
    return isinstance(value, (int, float, np.number, np.bool_))


def _reach(agent: BaseAlgorithm, name: str) -> Any:
    target: Any = agent
    for part in name.split("."):
        target = getattr(target, part)
    return target

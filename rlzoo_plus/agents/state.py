"""An agent's state as plain data with arrays, for checkpoints: taken out, and put back.

Taken at the top of an iteration (see `hooks`): parameters, optimizers, counters, random number
generators and normalisation. Replay buffer and environments are not part of it yet, so a run
cannot go on bit for bit from it; a policy and its optimizer can.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecNormalize

_COUNTERS = ("num_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining")


def capture(agent: BaseAlgorithm) -> dict[str, Any]:
    """Return the agent's state; nothing in it shares memory with the agent."""
    import torch

    _, tensor_names = agent._get_torch_save_params()
    return {
        "parameters": _to_arrays(agent.get_parameters()),
        "tensors": {name: _to_arrays(_reach(agent, name)) for name in tensor_names},
        "counters": {name: getattr(agent, name) for name in _COUNTERS if hasattr(agent, name)},
        "normalization": _normalization(agent.get_vec_normalize_env()),
        "random": {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state().numpy().copy(),
            "actions": agent.action_space.np_random.bit_generator.state,
        },
    }


def restore_parameters(agent: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Put networks, optimizers, normalisation and counters back into a freshly built agent."""
    import torch

    agent.set_parameters(_to_tensors(state["parameters"]), exact_match=True, device=agent.device)
    for name, value in state["tensors"].items():
        _reach(agent, name).data.copy_(torch.from_numpy(value))
    for name, value in state["counters"].items():
        setattr(agent, name, value)
    venv = agent.get_vec_normalize_env()
    if venv is not None and state["normalization"] is not None:
        _restore_normalization(venv, state["normalization"])


def _normalization(venv: VecNormalize | None) -> dict[str, Any] | None:
    if venv is None:
        return None
    state: dict[str, Any] = {"return": _statistics(venv.ret_rms), "returns": venv.returns.copy()}
    if venv.norm_obs:
        rms = venv.obs_rms if isinstance(venv.obs_rms, dict) else {"": venv.obs_rms}
        state["observation"] = {key: _statistics(value) for key, value in rms.items()}
    return state


def _statistics(rms: Any) -> dict[str, Any]:
    return {"mean": np.array(rms.mean), "var": np.array(rms.var), "count": float(rms.count)}


def _restore_normalization(venv: VecNormalize, state: dict[str, Any]) -> None:
    rms = venv.obs_rms if isinstance(getattr(venv, "obs_rms", None), dict) else None
    pairs = [(venv.ret_rms, state["return"])]
    for key, value in state.get("observation", {}).items():
        pairs.append((venv.obs_rms if rms is None else rms[key], value))
    for target, value in pairs:
        target.mean, target.var, target.count = value["mean"], value["var"], value["count"]
    venv.returns = state["returns"]


def _reach(agent: BaseAlgorithm, name: str) -> Any:
    target: Any = agent
    for part in name.split("."):
        target = getattr(target, part)
    return target


def _to_arrays(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, dict):
        return {key: _to_arrays(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_arrays(item) for item in value)
    return value


def _to_tensors(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {key: _to_tensors(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_tensors(item) for item in value)
    return value

"""The state of vectorised environments, with every wrapper around them, as plain data.

It is captured between two iterations, with every wrapper that `envs.factory` adds. The past of a
long running episode goes to chunks, so that it is written once: otherwise an episode without an
end would make each checkpoint larger than the last.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecNormalize

from rlzoo_plus.artifacts.chunks import ChunkIndex
from rlzoo_plus.envs.calls import CallRecord, check_attributes
from rlzoo_plus.envs.finite import FiniteVecEnv
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.envs.plain_state import fitted, to_plain

_NORMALIZE_ATTRIBUTES = ("returns", "old_reward", "training", "old_obs")
# They come from the configuration.
_NORMALIZE_SETTINGS = ("norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon")
# Steps in a block of a long episode; those after the last full block are in the checkpoint.
BLOCK = 4096
PREFIX = "episode/"
BEGINS_STAGE = "a stage of the curriculum begins"
# Of all environments together, when an untrusted checkpoint is read.
_LARGEST_BYTES = 2**32
_DAMAGED = "the past of an episode is damaged"


def capture_envs(venv: VecEnv) -> dict[str, Any]:
    """Return the state of training environments from `make_train_env`.

    Returns:
        `wrappers`, the outermost first; `episodes`, one for each environment; `rewards` of each
        running episode; `clock`, which depends on the time of day. A `vec_env` of the user's has
        `vec_env` in place of all but the wrappers.
    """
    wrappers, base = _layers(venv)
    if isinstance(base, OwnVecEnv):
        own = [_capture_wrapper(layer) for layer in wrappers]
        return {"wrappers": own, "episodes": [], "rewards": [], "vec_env": base.state()}
    rewards = [np.array(values, np.float64) for values in base.get_attr("rewards")]
    return {
        "wrappers": [_capture_wrapper(layer) for layer in wrappers],
        "episodes": base.env_method("episode_state"),
        "rewards": rewards,
        "total_steps": base.get_attr("total_steps"),
        "clock": base.get_attr("t_start"),
        "attributes": copy.deepcopy(base.attributes_set),
    }


def without_episodes(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of environments for others, in which new episodes begin."""
    return {"wrappers": state["wrappers"], "episodes": [], "rewards": [], "stage": True}


def unrecorded_calls(venv: VecEnv) -> list[str]:
    """Return what user code did to training environments that `capture_envs` misses."""
    return list(_layers(venv)[1].unrecorded)


def forgotten(venv: VecEnv, state: dict[str, Any]) -> list[str]:
    """Return what restored environments have lost that outlasts an episode."""
    base = _layers(venv)[1]
    found = []
    for rank, episode in enumerate(state["episodes"]):
        (reason,) = base.env_method("forgotten", episode, indices=rank)
        if reason is not None:
            found.append(f"environment {rank}: {reason}")
    return found


def restore_envs(venv: VecEnv, state: dict[str, Any], *, may_call: bool = False) -> list[str]:
    """Restore the state of freshly created environments.

    Args:
        venv: From `make_train_env`.
        state: From `capture_envs`.
        may_call: Whether trusted user code may have called their methods.

    Returns:
        What could not be restored exactly, a line for each environment.

    Raises:
        ValueError: The state does not fit the environments.
    """
    wrappers, base = _layers(venv)
    if isinstance(base, OwnVecEnv):
        problem = base.restore(state.get("vec_env"))
        problems = [] if problem is None else [problem]
    elif state.get("vec_env") is not None:
        problems = ["its experience came from elsewhere: new episodes begin"]
    elif state.get("stage"):
        problems = [BEGINS_STAGE]
    else:
        problems = _restore_chains(base, state, may_call=may_call)
    for layer, values in zip(wrappers, state["wrappers"], strict=True):
        _restore_wrapper(layer, values)
    return problems


def _restore_chains(base: VecEnv, state: dict[str, Any], *, may_call: bool) -> list[str]:
    problems = []
    attributes = state.get("attributes", [{}] * base.num_envs)
    _check_chains({**state, "attributes": attributes}, base.num_envs, may_call=may_call)
    for rank, episode in enumerate(state["episodes"]):
        rewards = state["rewards"][rank]
        (problem,) = base.env_method("restore_episode", episode, rewards, indices=rank)
        if problem is not None:
            problems.append(f"environment {rank}: {problem}")
        # Monitor's values of the running episode.
        counts = (rewards.tolist(), state["total_steps"][rank], state["clock"][rank])
        # By a method: what wraps a `Monitor` would take an attribute for its own.
        base.env_method("restore_counts", *counts, episode["episode"] is None, indices=rank)
        for name, value in attributes[rank].items():
            base.set_attr(name, value, indices=rank)
    return problems


def _check_chains(state: dict[str, Any], n_envs: int, *, may_call: bool) -> None:
    """Check what is set and called in the environments: workers cannot refuse anything."""
    for key in ("episodes", "rewards", "total_steps", "clock", "attributes"):
        if len(state[key]) != n_envs:
            raise ValueError(f"{key} are of {len(state[key])} environments, not of {n_envs}")
    if any(rewards.dtype != np.float64 or rewards.ndim != 1 for rewards in state["rewards"]):
        raise ValueError("the rewards of an episode are malformed")
    if not all(isinstance(number, (int, float)) for number in state["clock"]):
        raise ValueError("the start of an episode is not a time")
    if not all(type(steps) is int for steps in state["total_steps"]):
        raise ValueError("the steps of an environment are not a number")
    for values in state["attributes"]:
        check_attributes(values)
    records = [CallRecord.from_state(e["calls"]) for e in state["episodes"] if "calls" in e]
    if not may_call and (any(state["attributes"]) or any(r.before or r.during for r in records)):
        raise ValueError("it calls methods of the environments, which nothing in this run does")


def normalize_settings(venv: VecEnv) -> dict[str, Any]:
    """Return the settings of `VecNormalize`, empty without it."""
    layers = [layer for layer in _layers(venv)[0] if isinstance(layer, VecNormalize)]
    return {name: getattr(layers[0], name) for name in _NORMALIZE_SETTINGS} if layers else {}


def _layers(venv: Any) -> tuple[list[Any], Any]:
    wrappers: list[Any] = []
    while isinstance(venv, VecEnvWrapper):
        if not isinstance(venv, FiniteVecEnv):  # it has no state
            wrappers.append(venv)
        venv = venv.venv
    return wrappers, venv


def _capture_wrapper(layer: Any) -> dict[str, Any]:
    if isinstance(layer, VecFrameStack):
        return {"frames": {k: v.stacked_obs.copy() for k, v in _frames(layer).items()}}
    if hasattr(type(layer), "restore"):  # an instance also has what it wraps
        return dict(layer.state())
    if not isinstance(layer, VecNormalize):
        return {}
    state = {name: to_plain(getattr(layer, name)) for name in _NORMALIZE_ATTRIBUTES}
    state["return_statistics"] = _statistics(layer.ret_rms)
    if layer.norm_obs:
        rms = layer.obs_rms if isinstance(layer.obs_rms, dict) else {"": layer.obs_rms}
        state["observation_statistics"] = {key: _statistics(value) for key, value in rms.items()}
    return state


def _restore_wrapper(layer: Any, state: dict[str, Any]) -> None:
    if isinstance(layer, VecFrameStack):
        for key, part in _frames(layer).items():
            part.stacked_obs = fitted(part.stacked_obs, state["frames"][key], "frames")
    if hasattr(type(layer), "restore"):
        layer.restore(state)
    if not isinstance(layer, VecNormalize):
        return
    for name in _NORMALIZE_ATTRIBUTES:
        setattr(layer, name, fitted(vars(layer).get(name), state[name], name))
    pairs = [(layer.ret_rms, state["return_statistics"])]
    for key, value in state.get("observation_statistics", {}).items():
        rms = layer.obs_rms[key] if isinstance(layer.obs_rms, dict) else layer.obs_rms
        pairs.append((rms, value))
    for target, value in pairs:
        for name in ("mean", "var", "count"):
            setattr(target, name, fitted(getattr(target, name), value[name], name))


def _frames(layer: VecFrameStack) -> dict[str, Any]:
    """Return the stacks of frames by key of a dictionary observation; the key is empty for one."""
    stacked = layer.stacked_obs
    return getattr(stacked, "sub_stacked_observations", None) or {"": stacked}


def _statistics(rms: Any) -> dict[str, Any]:
    return {"mean": np.array(rms.mean), "var": np.array(rms.var), "count": rms.count}


def take_past(envs: dict[str, Any]) -> dict[str, tuple[int, dict[str, np.ndarray]]]:
    """Move the full blocks of running episodes out of the state of environments.

    Args:
        envs: From `capture_envs`; only the steps after the blocks stay in it.

    Returns:
        By the name of its chunks, of each environment with a past: its steps before the episode,
        which identify the episode, and its arrays `rewards` and, if recorded, `actions`, shape
        (n_steps, ...), n_steps being a multiple of `BLOCK`.
    """
    found = {}
    for rank, (held, rewards) in enumerate(zip(envs["episodes"], envs["rewards"], strict=True)):
        n_steps = len(rewards) // BLOCK * BLOCK
        episode = held["episode"]
        actions = None if episode is None else episode["actions"]
        if not n_steps or episode is None or (actions is not None and len(actions) < n_steps):
            continue
        columns = {"rewards": rewards[:n_steps]}
        envs["rewards"][rank] = rewards[n_steps:].copy()
        if actions is not None:
            columns["actions"] = actions[:n_steps]
            episode["actions"] = actions[n_steps:].copy()
        found[f"{PREFIX}{rank}"] = (envs["total_steps"][rank] - len(rewards), columns)
    return found


def put_past_back(
    envs: dict[str, Any],
    chunks: Mapping[str, ChunkIndex],
    read: Callable[[str, Mapping[str, np.ndarray]], None],
) -> dict[str, int]:
    """Put the full blocks of a checkpoint's running episodes back into its state.

    Args:
        envs: The state of environments in the checkpoint; it is completed.
        chunks: Where the checkpoint's rows are.
        read: Fills arrays with the rows of a name.

    Returns:
        The start of each episode with a past, as in `take_past`.

    Raises:
        ValueError: They do not fit the state.
    """
    mine = {name: index for name, index in chunks.items() if name.startswith(PREFIX)}
    if sum(index.used * index.row_bytes for index in mine.values()) > _LARGEST_BYTES:
        raise ValueError(_DAMAGED)
    starts = {}
    for name, index in mine.items():
        rank = int(name.removeprefix(PREFIX))
        episode = envs["episodes"][rank]["episode"]
        columns = {c.name: np.empty((index.used, *c.shape), c.dtype) for c in index.columns}
        if episode is None or not {"rewards"} <= columns.keys() <= {"rewards", "actions"}:
            raise ValueError(_DAMAGED)
        read(name, columns)
        envs["rewards"][rank] = np.concatenate([columns["rewards"], envs["rewards"][rank]])
        if "actions" in columns:
            episode["actions"] = np.concatenate([columns["actions"], episode["actions"]])
        starts[name] = envs["total_steps"][rank] - len(envs["rewards"][rank])
    return starts

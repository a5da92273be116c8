"""The state of vectorised environments, with every wrapper around them, as plain data.

Taken between two iterations. It knows every wrapper of the chain that `envs.factory` builds. The
past of a running episode that is long goes to chunks, so that it is written once: an episode that
never ends would make each checkpoint longer than the one before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.artifacts.chunks import ChunkIndex
from rlzoo_plus.envs.calls import CallRecord, check_attributes
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.resume.plain import fitted

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize

_NORMALIZE_ATTRIBUTES = ("returns", "old_reward", "training")
# They come from the configuration.
_NORMALIZE_SETTINGS = ("norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon")
# Steps in a block of a long episode; what comes after the last full one is in the checkpoint.
BLOCK = 4096
PREFIX = "episode/"
# Of all environments together, when a checkpoint is read that may come from anywhere.
_LARGEST_BYTES = 2**32
_DAMAGED = "the past of an episode is damaged"


def capture_envs(venv: VecEnv) -> dict[str, Any]:
    """Return the state of training environments from `make_train_env`.

    Returns:
        `wrappers`, from the outermost inwards; `episodes`, one for each environment; `rewards`,
        those of each running episode; `clock`, which depends on the time of day. Of a `vec_env`
        that steps them as one, `vec_env` in place of all but the wrappers.
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


def unrecorded_calls(venv: VecEnv) -> list[str]:
    """Return what user code did to training environments that `capture_envs` does not hold."""
    return list(_layers(venv)[1].unrecorded)


def forgotten(venv: VecEnv, state: dict[str, Any]) -> list[str]:
    """Return what restored environments have lost of what lasts longer than an episode."""
    base = _layers(venv)[1]
    found = []
    for rank, episode in enumerate(state["episodes"]):
        (reason,) = base.env_method("forgotten", episode, indices=rank)
        if reason is not None:
            found.append(f"environment {rank}: {reason}")
    return found


def restore_envs(venv: VecEnv, state: dict[str, Any], *, may_call: bool = False) -> list[str]:
    """Bring freshly made environments to a state.

    Args:
        venv: From `make_train_env`.
        state: From `capture_envs`.
        may_call: Whether code of a user's, which is trusted, may have called their methods.

    Returns:
        What is not the same as it was, a line for each environment; empty if all of it is.

    Raises:
        ValueError: It is the state of other environments, or of none.
    """
    wrappers, base = _layers(venv)
    if isinstance(base, OwnVecEnv):
        problem = base.restore(state.get("vec_env"))
        problems = [] if problem is None else [problem]
    else:
        problems = _restore_chains(base, state, may_call=may_call)
    for layer, values in zip(wrappers, state["wrappers"], strict=True):
        _restore_wrapper(layer, values)
    return problems


def _restore_chains(base: VecEnv, state: dict[str, Any], *, may_call: bool) -> list[str]:
    problems = []
    _check_monitors(state, base.num_envs)
    attributes = state.get("attributes", [{}] * base.num_envs)
    _check_calls(state["episodes"], attributes, may_call=may_call)
    for rank, episode in enumerate(state["episodes"]):
        rewards = state["rewards"][rank]
        (problem,) = base.env_method("restore_episode", episode, rewards, indices=rank)
        if problem is not None:
            problems.append(f"environment {rank}: {problem}")
        # What Monitor knows of the running episode.
        base.set_attr("rewards", rewards.tolist(), indices=rank)
        base.set_attr("total_steps", state["total_steps"][rank], indices=rank)
        base.set_attr("t_start", state["clock"][rank], indices=rank)
        base.set_attr("needs_reset", episode["episode"] is None, indices=rank)
        for name, value in attributes[rank].items():
            base.set_attr(name, value, indices=rank)
    return problems


def _check_monitors(state: dict[str, Any], n_envs: int) -> None:
    """Check what is set in the environments' monitors as it is."""
    for key in ("episodes", "rewards", "total_steps", "clock"):
        if len(state[key]) != n_envs:
            raise ValueError(f"{key} are of {len(state[key])} environments, not of {n_envs}")
    for rewards in state["rewards"]:
        if rewards.dtype != np.float64 or rewards.ndim != 1:
            raise ValueError("the rewards of an episode are none")
    if not all(isinstance(number, (int, float)) for number in state["clock"]):
        raise ValueError("the start of an episode is no time")
    if not all(type(steps) is int for steps in state["total_steps"]):
        raise ValueError("the steps of an environment are no number")


def _check_calls(episodes: list[Any], attributes: list[Any], *, may_call: bool) -> None:
    """Check what is to be called and set: it could be anything, and workers cannot refuse."""
    records = [CallRecord.from_state(e["calls"]) for e in episodes if "calls" in e]
    if len(attributes) != len(episodes):
        raise ValueError(f"attributes are of {len(attributes)} environments")
    for values in attributes:
        check_attributes(values)
    if not may_call and (any(attributes) or any(r.before or r.during for r in records)):
        raise ValueError("it calls methods of the environments, which nothing in this run does")


def normalize_settings(venv: VecEnv) -> dict[str, Any]:
    """Return how observations and rewards are normalised, apart from the statistics."""
    from stable_baselines3.common.vec_env import VecNormalize

    layers = [layer for layer in _layers(venv)[0] if isinstance(layer, VecNormalize)]
    return {name: getattr(layers[0], name) for name in _NORMALIZE_SETTINGS} if layers else {}


def _layers(venv: VecEnv) -> tuple[list[Any], VecEnv]:
    from stable_baselines3.common.vec_env import VecEnvWrapper

    from rlzoo_plus.envs.finite import FiniteVecEnv

    wrappers: list[Any] = []
    while isinstance(venv, VecEnvWrapper):
        if not isinstance(venv, FiniteVecEnv):  # it has no state
            wrappers.append(venv)
        venv = venv.venv
    return wrappers, venv


def _capture_wrapper(layer: Any) -> dict[str, Any]:
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    if isinstance(layer, VecNormalize):
        return _capture_normalize(layer)
    if isinstance(layer, VecFrameStack):
        return {"frames": {k: v.stacked_obs.copy() for k, v in _frames(layer).items()}}
    return {}


def _restore_wrapper(layer: Any, values: dict[str, Any]) -> None:
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    if isinstance(layer, VecNormalize):
        _restore_normalize(layer, values)
    elif isinstance(layer, VecFrameStack):
        for key, part in _frames(layer).items():
            part.stacked_obs = fitted(part.stacked_obs, values["frames"][key], "frames")


def _frames(layer: VecFrameStack) -> dict[str, Any]:
    """Return the stacks of frames by key of a dictionary observation; the key is empty for one."""
    stacked = layer.stacked_obs
    return getattr(stacked, "sub_stacked_observations", None) or {"": stacked}


def _capture_normalize(venv: VecNormalize) -> dict[str, Any]:
    state = {name: _copied(getattr(venv, name)) for name in _NORMALIZE_ATTRIBUTES}
    state["old_obs"] = _copied(venv.old_obs)
    state["return_statistics"] = _statistics(venv.ret_rms)
    if venv.norm_obs:
        rms = venv.obs_rms if isinstance(venv.obs_rms, dict) else {"": venv.obs_rms}
        state["observation_statistics"] = {key: _statistics(value) for key, value in rms.items()}
    return state


def _restore_normalize(venv: VecNormalize, state: dict[str, Any]) -> None:
    for name in (*_NORMALIZE_ATTRIBUTES, "old_obs"):
        setattr(venv, name, fitted(vars(venv).get(name), state[name], name))
    pairs = [(venv.ret_rms, state["return_statistics"])]
    for key, value in state.get("observation_statistics", {}).items():
        pairs.append((venv.obs_rms[key] if isinstance(venv.obs_rms, dict) else venv.obs_rms, value))
    for target, value in pairs:
        for name in ("mean", "var", "count"):
            setattr(target, name, fitted(getattr(target, name), value[name], name))


def _statistics(rms: Any) -> dict[str, Any]:
    return {"mean": np.array(rms.mean), "var": np.array(rms.var), "count": rms.count}


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class Past:
    """The full blocks of one environment's running episode.

    Attributes:
        start: The environment's steps before the episode; no other of its episodes has the same.
        columns: `rewards`, and `actions` if they are kept, shape (n_steps, ...).
        n_steps: Steps in full blocks, a multiple of `BLOCK`.
    """

    start: int
    columns: dict[str, np.ndarray]
    n_steps: int


def take_past(envs: dict[str, Any]) -> dict[str, Past]:
    """Move the full blocks out of the state of environments.

    Args:
        envs: From `capture_envs`; only what follows the blocks stays in it.

    Returns:
        The past of each environment that has one, by the name of its chunks.
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
        start = envs["total_steps"][rank] - len(rewards)
        found[f"{PREFIX}{rank}"] = Past(start, columns, n_steps)
    return found


def put_past_back(
    envs: dict[str, Any],
    chunks: Mapping[str, ChunkIndex],
    read: Callable[[str, Mapping[str, np.ndarray]], None],
) -> dict[str, int]:
    """Join the blocks of a checkpoint with what follows them.

    Args:
        envs: The state of environments in the checkpoint; it is completed.
        chunks: Where the checkpoint's rows are.
        read: Fills arrays with the rows of a name.

    Returns:
        The start of each episode that has a past, by the name of its chunks.

    Raises:
        ValueError: They do not belong together.
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

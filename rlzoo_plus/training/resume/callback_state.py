"""The state of callbacks as plain data: by their `state_dict`, otherwise by their attributes.

A user's callback can have `state_dict()` and `load_state_dict(state)`. Otherwise its plain
attributes (numbers, texts, arrays and containers of them) are saved; `unsaved` names the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.artifacts.secrets import is_secret
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.envs.plain_state import is_plain, replace_attributes, to_plain

_OF_THE_PROCESS = {"locals", "globals", "model", "parent", "verbose"}
# Settings, and parts of Stable-Baselines3 that are restored elsewhere.
_CONSTANT = (Path, BuiltinFunctionType, FunctionType, MethodType, ModuleType, Logger, type)


def capture_callbacks(callbacks: Sequence[BaseCallback]) -> dict[str, dict[str, Any]]:
    """Return the state of each callback, and of callbacks inside it, by position and class."""
    return {path: _state(callback) for path, callback in _walk(callbacks)}


def restore_callbacks(callbacks: Sequence[BaseCallback], state: dict[str, dict[str, Any]]) -> None:
    """Restore the states; a new callback has none."""
    for path, callback in _walk(callbacks):
        if path in state and _has_state_dict(callback):
            callback.load_state_dict(state[path]["account"])
            callback.n_calls = int(state[path]["n_calls"])
        elif path in state:
            replace_attributes(callback, state[path], _OF_THE_PROCESS)


def unsaved(callbacks: Sequence[BaseCallback]) -> list[str]:
    """Return what a checkpoint misses of the callbacks, a text for each attribute."""
    missed = []
    for callback in (callback for _, callback in _walk(callbacks) if not _has_state_dict(callback)):
        kind = type(callback).__name__
        for name, value in _attributes(callback):
            items = value if isinstance(value, list) else [value]
            inner = any(isinstance(item, BaseCallback) for item in items)
            if isinstance(value, (VecEnv, gym.Env)):
                missed.append(f"callback {kind} keeps an environment of its own, {name}")
            elif not is_plain(value) and not inner and not isinstance(value, _CONSTANT):
                missed.append(
                    f"callback {kind} keeps {name}, a {type(value).__name__}, and has no state_dict"
                )
    return missed


def _has_state_dict(callback: Any) -> bool:
    return hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict")


def _state(callback: Any) -> dict[str, Any]:
    if not _has_state_dict(callback):
        return {
            name: to_plain(value)
            for name, value in _attributes(callback)
            # A secret comes from the environment again.
            if is_plain(value) and not is_secret(name, value)
        }
    state = callback.state_dict()
    try:
        pack(state)  # to name the callback in the error
    except TypeError as error:
        kind = type(callback).__name__
        raise TypeError(f"callback {kind}: state_dict(){error}") from error
    # A copy: it is written while training continues.
    return {"account": to_plain(state), "n_calls": callback.n_calls}


def _attributes(callback: BaseCallback) -> list[tuple[str, Any]]:
    return [(n, v) for n, v in vars(callback).items() if n not in _OF_THE_PROCESS]


def _walk(callbacks: Sequence[Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for number, callback in enumerate(callbacks):
        here = f"{path}{number}:{type(callback).__name__}"
        yield here, callback
        parts = getattr(callback, "callbacks", None)
        inner = list(parts) if isinstance(parts, (list, tuple)) else []
        inner += [getattr(callback, name, None) for name in ("callback", "callback_on_new_best")]
        inner = [part for part in inner if isinstance(part, BaseCallback)]
        yield from _walk(inner, f"{here}/")

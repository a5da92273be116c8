"""What callbacks remember, as plain data: ours by their own account, others' by their attributes.

A callback of a user's can offer `state_dict()` and `load_state_dict(state)`. Otherwise its plain
attributes (numbers, texts, arrays and containers of them) are kept, and what else changes in it
is not; `unsaved` names that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.artifacts.secrets import is_secret
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.resume.plain import is_plain, replace_attributes, to_plain

_OF_THE_PROCESS = {"locals", "globals", "model", "parent", "verbose"}
# Settings, and parts of Stable-Baselines3 that are put back elsewhere.
_CONSTANT = (Path, BuiltinFunctionType, FunctionType, MethodType, ModuleType, Logger, type)


@runtime_checkable
class KeepsBest(Protocol):
    """A callback whose best policy lies in a folder of its own, beside the checkpoints."""

    def missing_best(self) -> list[str]:
        """Return what of it is lost, a text for each."""

    def keep_saved_best(self) -> None:
        """Take the policy that is saved for the best, if it is better than what is remembered."""


def capture_callbacks(callbacks: Sequence[BaseCallback]) -> dict[str, dict[str, Any]]:
    """Return the state of each callback, and of those inside it, by its place and class."""
    return {path: _state(callback) for path, callback in _walk(callbacks)}


def restore_callbacks(callbacks: Sequence[BaseCallback], state: dict[str, dict[str, Any]]) -> None:
    """Put the states back; a callback that is new has none."""
    for path, callback in _walk(callbacks):
        if path not in state:
            continue
        if _has_account(callback):
            callback.load_state_dict(state[path]["account"])
            callback.n_calls = int(state[path]["n_calls"])
        else:
            replace_attributes(callback, state[path], _OF_THE_PROCESS)


def unsaved(callbacks: Sequence[BaseCallback]) -> list[str]:
    """Return what a checkpoint misses of the callbacks, a text for each attribute."""
    missed = []
    for _, callback in _walk(callbacks):
        kind = type(callback).__name__
        if _has_account(callback):
            continue
        for name, value in _attributes(callback):
            inner = isinstance(value, BaseCallback) or (
                isinstance(value, list) and any(isinstance(v, BaseCallback) for v in value)
            )
            if isinstance(value, (VecEnv, gym.Env)):
                missed.append(f"callback {kind} keeps an environment of its own, {name}")
            elif not is_plain(value) and not inner and not isinstance(value, _CONSTANT):
                missed.append(
                    f"callback {kind} keeps {name}, a {type(value).__name__}, and has no state_dict"
                )
    return missed


def _has_account(callback: Any) -> bool:
    return hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict")


def _state(callback: Any) -> dict[str, Any]:
    if not _has_account(callback):
        return {
            name: to_plain(value)
            for name, value in _attributes(callback)
            # A secret comes from the environment again.
            if is_plain(value) and not is_secret(name, value)
        }
    state = callback.state_dict()
    try:
        pack(state)  # what cannot be written is the callback's mistake, and known by its name
    except TypeError as error:
        kind = type(callback).__name__
        raise TypeError(f"callback {kind}: state_dict(){error}") from error
    # A copy: it is written while the callback goes on.
    return {"account": to_plain(state), "n_calls": callback.n_calls}


def _attributes(callback: BaseCallback) -> list[tuple[str, Any]]:
    return [(n, v) for n, v in vars(callback).items() if n not in _OF_THE_PROCESS]


def _walk(callbacks: Sequence[BaseCallback], path: str = "") -> Iterator[tuple[str, BaseCallback]]:
    for number, callback in enumerate(callbacks):
        here = f"{path}{number}:{type(callback).__name__}"
        yield here, callback
        parts = getattr(callback, "callbacks", None)
        inner = list(parts) if isinstance(parts, (list, tuple)) else []
        inner += [getattr(callback, name, None) for name in ("callback", "callback_on_new_best")]
        inner = [part for part in inner if isinstance(part, BaseCallback)]
        yield from _walk(inner, f"{here}/")

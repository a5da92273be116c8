"""Whose code has an agent: Stable-Baselines3's and ours, or the user's, which may do anything."""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import nn

# Their code is read by nobody else, and decides nothing by numbers that tracing would not notice.
_KNOWN_CODE = ("torch", "stable_baselines3", "sb3_contrib", "rlzoo_plus")
# What a callback refers to that is no part of it.
_NOT_ITS_OWN = ("model", "parent")


class RecordingMixin:
    """The base of all mixins: in a class with some, it comes after them, before the algorithm.

    Attributes:
        undisturbed: Identifies a training in which only known code has the agent, see `Looks`; None
            in any other, and when none is under way.
    """

    undisturbed: object | None = None

    def learn(self, total_timesteps: int, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Learn."""
        classes = [kind for kind in type(self).__mro__ if kind not in (ABC, object)]
        has_known_code = all(map(is_known, classes)) and _are_known(callback)
        self.undisturbed = object() if has_known_code else None
        try:
            return super().learn(total_timesteps, callback, *args, **kwargs)  # type: ignore[misc]
        finally:
            self.undisturbed = None

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "undisturbed"]  # type: ignore[misc]


def owner_of(kind: type, method: str) -> str:
    """Return the class whose method an agent has, below our mixins."""
    below = kind.__mro__[kind.__mro__.index(RecordingMixin) + 1 :]
    return next((name_of(c) for c in below if method in vars(c)), name_of(kind))


def name_of(kind: type) -> str:
    """Return the name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def own_code_in(policy: nn.Module) -> str:
    """Return what in a policy may decide anew at each call, empty if nothing does."""
    for name, module in policy.named_modules():
        shown = name or type(policy).__name__
        if not is_known(type(module)):
            return f"{type(module).__name__} ({shown}) is code of yours"
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        if any(hooks) or module._backward_pre_hooks or _overridden(module):
            return f"{shown} has hooks or methods of yours"
    if torch.is_autocast_enabled("cpu") or torch.is_anomaly_enabled():
        return "torch computes in another mode"
    return ""


def _overridden(module: nn.Module) -> bool:
    """Return whether an object has a method that its class has otherwise."""
    return any(callable(getattr(type(module), name, None)) for name in vars(module))


def is_known(code: Any) -> bool:
    """Return whether a class or function is no code of the user's."""
    return str(getattr(code, "__module__", "")).partition(".")[0] in _KNOWN_CODE


def _are_known(callbacks: Any) -> bool:
    """Return whether callbacks are no code of the user's, nor what they hold and may call."""
    if isinstance(callbacks, (list, tuple)):
        return all(map(_are_known, callbacks))
    if isinstance(callbacks, BaseCallback):
        parts = [part for name, part in vars(callbacks).items() if name not in _NOT_ITS_OWN]
        return is_known(type(callbacks)) and all(map(_are_known, parts))
    return not callable(callbacks) or is_known(callbacks)

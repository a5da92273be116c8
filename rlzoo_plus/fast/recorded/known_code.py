"""Whose code has an agent: Stable-Baselines3's and ours, or the user's, which may do anything."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from abc import ABC
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from rlzoo_plus.fast.recorded.change_detector import (
    ChangeDetector,
    functions_called,
    hooks_in,
    method_names,
    methods_of,
    watched,
)
from rlzoo_plus.fast.recorded.tape import NotRecordableError
from rlzoo_plus.fast.recorded.training_mode import TrainingMode

log = logging.getLogger(__name__)
# So often a change of the agent is followed; each time costs as much as several updates.
_MOST_CHANGES = 30
# Their code is read by nobody else, and decides nothing by numbers that tracing would not notice.
_KNOWN_CODE = ("torch", "stable_baselines3", "sb3_contrib", "rlzoo_plus")
_LIBRARIES = {*_KNOWN_CODE, "numpy", "gymnasium", "typing_extensions", *sys.stdlib_module_names}
# What a callback refers to that is no part of it.
_NOT_ITS_OWN = ("model", "parent")


class Accelerated:
    """Mixin for an algorithm that updates itself and acts from recordings: it comes before it.

    Attributes:
        recorded: What makes the updates, None to leave them to the algorithm.
        rollouts: What collects the experience, None as above.
        trusted_code_token: Identifies a training in which only known code has the agent, see
            `ChangeDetector.is_due`; None in any other, and when none is under way.
    """

    recorded: Any = None
    rollouts: Any = None
    trusted_code_token: object | None = None

    def learn(self, total_timesteps: int, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Learn."""
        classes = [kind for kind in type(self).__mro__ if kind not in (ABC, object)]
        has_known_code = all(map(is_known, classes)) and _are_known(callback)
        self.trusted_code_token = object() if has_known_code else None
        try:
            return super().learn(total_timesteps, callback, *args, **kwargs)  # type: ignore[misc]
        finally:
            self.trusted_code_token = None

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks."""
        plain = super().train  # type: ignore[misc]
        if self.recorded is None:
            plain(*args, **kwargs)
        else:
            self.recorded.train(self, plain, *args, **kwargs)

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
        """Collect experience."""
        plain = super().collect_rollouts  # type: ignore[misc]
        if self.rollouts is None:
            return plain(*args, **kwargs)
        return self.rollouts.collect(self, plain, *args, **kwargs)

    def get_parameters(self) -> dict[str, Any]:
        """Return the parameters; each tensor has memory of its own, as files need it."""
        parameters: dict[str, Any] = super().get_parameters()  # type: ignore[misc]
        if self.recorded is not None and self.recorded.n_recorded:
            parameters = _with_own_memory(parameters)
        return parameters

    def _excluded_save_params(self) -> list[str]:
        own = ("recorded", "rollouts", "trusted_code_token")
        return [*super()._excluded_save_params(), *own]  # type: ignore[misc]


def owner_of(kind: type, method: str) -> str:
    """Return the class whose method an agent has, below our mixin."""
    below = kind.__mro__[kind.__mro__.index(Accelerated) + 1 :]
    return next((name_of(c) for c in below if method in vars(c)), name_of(kind))


def name_of(kind: type) -> str:
    """Return the name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def own_code_in(agent: Any) -> str:
    """Return what in an agent may decide anew at each call, empty if nothing does."""
    parts = watched(agent)
    names = {id(module): name for name, module in agent.policy.named_modules()}
    for part in parts:
        kind: Any = type(part)
        shown = names.get(id(part)) or kind.__name__
        if not is_known(kind) and not isinstance(part, spaces.Space):
            return f"{kind.__name__} ({shown}) is code of yours"
        if not method_names(kind).isdisjoint(vars(part)):
            return f"{shown} has hooks or methods of yours"
    if not method_names(agent.__class__).isdisjoint(vars(agent)):
        return f"{type(agent).__name__} has methods of yours"
    for hooked in hooks_in(agent):
        return f"{hooked} has hooks or methods of yours"
    places = [*methods_of({type(agent), *map(type, parts)}), *functions_called(type(agent))]
    for owner, name in places:
        if not _is_of_a_library(owner[name]):
            return f"{name} is a function of yours"
    if torch.is_autocast_enabled("cpu") or torch.is_anomaly_enabled():
        return "torch computes in another mode"
    return ""


def _is_of_a_library(value: Any) -> bool:
    """Return whether a method is one that a library wrote, whatever module it claims to be of."""
    value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    scope = getattr(value, "__globals__", None)
    if scope is not None:
        module = scope.get("__name__")
    else:
        module = getattr(value, "__module__", None) or getattr(value, "__name__", None)
    return str(module).partition(".")[0] in _LIBRARIES


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


def _with_own_memory(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        copied = copy.copy(value)  # with the attributes that torch gives it
        copied.update({key: _with_own_memory(item) for key, item in value.items()})
        return copied
    if isinstance(value, list):
        return [_with_own_memory(item) for item in value]
    return value


class Recorder:
    """Base of what does a part of an agent's work from recordings.

    Attributes:
        work: The name of that work.
        reason: Why nothing is recorded any more, empty as long as it is.
    """

    work = ""

    def __init__(self) -> None:
        self.reason = ""
        self.detector: ChangeDetector | None = None
        self._changes_left = _MOST_CHANGES
        self._mode: TrainingMode | None = None

    def forget(self) -> None:
        """Give up what has been recorded: the agent has changed."""
        self._changes_left -= self.detector is not None
        self.detector = self._mode = None

    def set_training_mode(self, mode: bool, plain: Callable[[bool], None], agent: Any) -> None:
        """Set the training mode of an agent's policy.

        Args:
            mode: The mode.
            plain: The policy's own method, which is called if its modules may have changed.
            agent: The agent.
        """
        if self.detector is None or not self.detector.has_looked(agent.trusted_code_token):
            plain(mode)
            return
        if self._mode is None:
            self._mode = TrainingMode(agent.policy, plain)
        (self._mode.set if self._mode.is_known else plain)(mode)

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        if not self.reason:
            log.log(level, "%s are not recorded: %s", self.work, reason)
        self.reason, self.detector = reason, None

    @contextlib.contextmanager
    def failures(self) -> Iterator[list[str]]:
        """Let something be made with a recording; the list is then why it cannot be, if so."""
        found: list[str] = []
        try:
            yield found
        except NotRecordableError as error:
            found.append(str(error))
        # Whatever a network of another version of torch can raise: the algorithm goes on itself.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            log.debug("why %s are not recorded:", self.work, exc_info=True)
            found.append(f"{type(error).__name__}: {error}")

    def why_not(self, agent: Any) -> str:
        """Return why an agent's work cannot be recorded, empty if it may be."""
        if self._changes_left <= 0 and agent.trusted_code_token is None:
            return "the agent is changed again and again"
        if agent.device.type != "cpu":
            return f"they are on the CPU only, and the device is {agent.device}"
        return own_code_in(agent)

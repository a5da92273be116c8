"""Whose code has an agent: Stable-Baselines3's and ours, or the user's, which may do anything."""

from __future__ import annotations

import hashlib
import inspect
import logging
import sys
from abc import ABC
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.fast.recorded.change_detector import (
    ChangeDetector,
    functions_called,
    hooks_in,
    method_names,
    methods_of,
    watched,
)

log = logging.getLogger(__name__)
# So often a change of the agent is followed; each time costs as much as several updates.
_MOST_CHANGES = 30
# Their code is read by nobody else, and decides nothing by numbers that tracing would not notice.
_KNOWN_CODE = ("torch", "stable_baselines3", "sb3_contrib", "rlzoo_plus")
_LIBRARIES = {*_KNOWN_CODE, "numpy", "gymnasium", "typing_extensions", *sys.stdlib_module_names}
# What a callback refers to that is no part of it.
_NOT_ITS_OWN = ("model", "parent")
_SB3 = "stable_baselines3."
_BUFFERS = f"{_SB3}common.buffers:"
# What was read of Stable-Baselines3 and is done here in another way: hashes of its source.
SOURCES = {
    _SB3 + "ppo.ppo:PPO.train": "ec68d11f745d752e",
    _SB3 + "a2c.a2c:A2C.train": "cdc5ab64ffacb695",
    _SB3 + "sac.sac:SAC.train": "b6581a18fac19de1",
    _SB3 + "td3.td3:TD3.train": "b41e78f417cfa510",
    _SB3 + "dqn.dqn:DQN.train": "c78a464ef38c6810",
    "sb3_contrib.tqc.tqc:TQC.train": "5e145d113ee9a8a1",
    _SB3 + "common.on_policy_algorithm:OnPolicyAlgorithm.collect_rollouts": "e16a4c8d2ce0c906",
    _SB3 + "common.off_policy_algorithm:OffPolicyAlgorithm.collect_rollouts": "8335f10d1324617a",
    _SB3 + "common.off_policy_algorithm:OffPolicyAlgorithm._sample_action": "b3eb091883ae18ab",
    _SB3 + "common.base_class:BaseAlgorithm.predict": "d687cebc0f67475f",
    _SB3 + "dqn.dqn:DQN.predict": "ab693140c71c8e6a",
    "sb3_contrib.qrdqn.qrdqn:QRDQN.predict": "890a2b8bacc48348",
    _BUFFERS + "RolloutBuffer.add": "e295c63641c40b27",
    _BUFFERS + "RolloutBuffer.get": "572ae10a5eb964c6",
    _BUFFERS + "RolloutBuffer._get_samples": "8c6184b9315feebe",
    _BUFFERS + "RolloutBuffer.compute_returns_and_advantage": "e7ec8729502b40ea",
    _BUFFERS + "DictRolloutBuffer.add": "6cd7a17037c024fe",
    _BUFFERS + "DictRolloutBuffer.get": "8a85d773226995a6",
    _BUFFERS + "DictRolloutBuffer._get_samples": "1559ac47650b8cee",
    _BUFFERS + "BaseBuffer.swap_and_flatten": "b148802544c51aa3",
    _BUFFERS + "BaseBuffer.sample": "df09ef8761935a28",
    _BUFFERS + "ReplayBuffer.sample": "7e6fccb5d66c8951",
    _BUFFERS + "ReplayBuffer._get_samples": "6ab0532d438a5abe",
    _SB3 + "common.policies:BasePolicy.predict": "603da3f2be9f148b",
    _SB3 + "common.utils:polyak_update": "2e5efe8eed33e3b5",
    _SB3 + "common.utils:explained_variance": "2060089566ca8ecc",
}


class RecordingMixin:
    """The base of all mixins: in a class with some, it comes after them, before the algorithm.

    Attributes:
        trusted_code_token: Identifies a training in which only known code has the agent, see
            `ChangeDetector.is_due`; None in any other, and when none is under way.
    """

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

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "trusted_code_token"]  # type: ignore[misc]


def owner_of(kind: type, method: str) -> str:
    """Return the class whose method an agent has, below our mixins."""
    below = kind.__mro__[kind.__mro__.index(RecordingMixin) + 1 :]
    return next((name_of(c) for c in below if method in vars(c)), name_of(kind))


def name_of(kind: type) -> str:
    """Return the name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def own_code_in(agent: Any) -> str:
    """Return what in an agent may decide anew at each call, empty if nothing does."""
    parts = watched(agent)
    names = {id(module): name for name, module in agent.policy.named_modules()}
    for part in parts:
        kind = type(part)
        shown = names.get(id(part)) or kind.__name__
        if not is_known(kind) and not isinstance(part, spaces.Space):
            return f"{kind.__name__} ({shown}) is code of yours"
        if not method_names(kind).isdisjoint(vars(part)):
            return f"{shown} has hooks or methods of yours"
    if not method_names(type(agent)).isdisjoint(vars(agent)):
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


def changed_source(names: Iterable[str]) -> str:
    """Return the first of the functions in `SOURCES` whose source is another, empty if none is."""
    for name in names:
        module, _, path = name.partition(":")
        try:
            found = source_hash(attrgetter(path)(import_module(module)).__code__)
        except (AttributeError, ImportError, OSError):
            found = ""
        if found != SOURCES[name]:
            return f"{path} is not the function that is known"
    return ""


@cache
def source_hash(code: Any) -> str:
    """Return a hash of the source of a function, without comments and indentation."""
    lines = (line.partition("#")[0].strip() for line in inspect.getsource(code).splitlines())
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()[:16]


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

    def forget(self) -> None:
        """Give up what has been recorded: the agent has changed."""
        self._changes_left -= self.detector is not None
        self.detector = None

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        if not self.reason:
            log.log(level, "%s are not recorded: %s", self.work, reason)
        self.reason, self.detector = reason, None

    def why_not(self, agent: Any) -> str:
        """Return why an agent's work cannot be recorded, empty if it may be."""
        if self._changes_left <= 0 and agent.trusted_code_token is None:
            return "the agent is changed again and again"
        if agent.device.type != "cpu":
            return f"they are on the CPU only, and the device is {agent.device}"
        return own_code_in(agent)

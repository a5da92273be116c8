"""`ChangeDetector`: detects changes of an agent that its recordings would ignore.

A recording keeps what Stable-Baselines3 reads again at each update and at each action:

- tensors: where they are in memory, `requires_grad` and hooks;
- modules: parts, settings, hooks, and attributes that shadow methods;
- optimizers: parameters and hooks, and the hooks of all optimizers and of all modules;
- the buffer, distributions and spaces: the objects, their settings, attributes that shadow methods;
- their classes: the methods; of `train` and the like also the functions that they call;
  of methods and settings those whose names are in code that `train` and the like reach;
- PyTorch: its modes.

Weights may change in place, and so may `training`. Numbers such as `gamma` are no part of a
recording.
"""

from __future__ import annotations

import gc
import inspect
from abc import ABC
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter, is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.distributions import Distribution, TanhBijector
from torch import Tensor, nn
from torch.nn.modules import module as all_modules
from torch.optim import optimizer as all_optimizers

from rlzoo_plus.fast.recorded.bit_comparison import optimizers_of

# Where only known code has the agent, it is looked at once in so many times.
_SELDOM = 64
# Parts of a module by name; what is called around it and around a step of an optimizer.
_PARTS = ("_modules", "_parameters", "_buffers")
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
)
# Hooks of all modules and all optimizers.
_GLOBAL_HOOKS = [
    hooks
    for place, prefix in ((all_modules, "_global_"), (all_optimizers, "_global_optimizer_"))
    for name, hooks in vars(place).items()
    if name.startswith(prefix) and isinstance(hooks, dict)
]
_TENSOR_HOOKS = [*map(attrgetter, ("_backward_hooks", "_post_accumulate_grad_hooks"))]
_METHODS = (FunctionType, staticmethod, classmethod, property)
# Methods of an algorithm that recordings stand for, and by which a module is called.
RECORDED_METHODS = ("train", "collect_rollouts", "_sample_action", "predict")
_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl", "forward")
# What a distribution computes anew at each call.
_COMPUTED: tuple[str, ...] = (
    "distribution",
    "mean_actions",
    "log_std",
    "gaussian_actions",
    "weights_dist",
)
_COMPUTED += ("exploration_mat", "exploration_matrices", "_latent_sde")
# The dictionaries of parts and hooks are compared by what is in them.
_NOT_READ = frozenset({"training", "_np_random", *_COMPUTED, *_PARTS, *_HOOKS})
_KEPT_BY_AGENT = (nn.Module, Tensor, torch.optim.Optimizer, BaseBuffer, spaces.Space)
_INNER = (Distribution, TanhBijector, spaces.Space)


class ChangeDetector:
    """Detects changes of an agent since this object was made.

    Attributes:
        network: The policy.
    """

    def __init__(self, agent: Any) -> None:
        self.network: nn.Module = agent.policy
        objects = watched(agent)
        self._objects = [agent, *objects]
        self._types = [*map(type, self._objects)]
        modules = [*map(vars, self.network.modules())]
        parts = [own[name] for own in modules for name in _PARTS]
        owners = [vars(o) for o in objects if not isinstance(o, BaseBuffer)]
        hooks = [own[name] for own in owners for name in _HOOKS if name in own]
        names = names_read(frozenset(self._types)) - _NOT_READ
        methods = [(owner, n) for owner, n in methods_of(self._types) if n in names]
        functions = functions_called(type(agent))
        classes = {id(owner): owner for owner, _ in methods}.values()
        self._dicts = [*owners, *parts, *hooks, *_GLOBAL_HOOKS, *classes]
        self._sizes = [*map(len, self._dicts)]
        held = [(vars(agent), n) for n, v in vars(agent).items() if isinstance(v, _KEPT_BY_AGENT)]
        settings = [(own, name) for own in owners for name in own if name in names]
        places = [(part, name) for part in parts for name in part]
        self._entries = _Entries([*places, *held, *settings, *methods, *functions])
        self._tensors = [value for value in self._entries.values if isinstance(value, Tensor)]
        self._addresses = [*map(Tensor.data_ptr, self._tensors)]
        self._learned = [tensor.requires_grad for tensor in self._tensors]
        self._groups = [o.param_groups for o in objects if isinstance(o, torch.optim.Optimizer)]
        self._stepped = self._parameters()
        self._modes = modes()
        self._shadowing = [
            (vars(o), method_names(o.__class__)) for o in (agent, *_buffers_of(agent))
        ]
        self._training: object | None = None
        self._left = 0

    def is_due(self, training: object | None) -> bool:
        """Return whether it is time to look.

        Looking reads some hundred objects from memory, which the caches no longer hold after an
        update.

        Args:
            training: Identifies a training in which only known code has the agent; None if other
                code may have changed it.
        """
        if training is None or training is not self._training or not self._left:
            self._training, self._left = training, _SELDOM
            return True
        self._left -= 1
        return False

    def has_looked(self, training: object | None) -> bool:
        """Return whether only known code has had the agent since it was looked at.

        Args:
            training: As in `is_due`.
        """
        return training is not None and training is self._training

    def fits(self, agent: Any) -> bool:
        """Return whether an agent is the one that was recorded, without a change."""
        return (
            agent is self._objects[0]
            and [*map(len, self._dicts)] == self._sizes
            and self._entries.are_same()
            and [*map(type, self._objects)] == self._types
            and [*map(Tensor.data_ptr, self._tensors)] == self._addresses
            and [tensor.requires_grad for tensor in self._tensors] == self._learned
            and not any(any(map(hooks, self._tensors)) for hooks in _TENSOR_HOOKS)
            and all(names.isdisjoint(own) for own, names in self._shadowing)
            and self._parameters() == self._stepped
            and modes() == self._modes
        )

    def fits_if_due(self, agent: Any) -> bool:
        """Look if it is time to; return whether no change is known."""
        is_same = agent.policy is self.network
        return is_same and (not self.is_due(agent.trusted_code_token) or self.fits(agent))

    def _parameters(self) -> list[int]:
        return [id(p) for groups in self._groups for group in groups for p in group["params"]]


class _Entries:
    """Entries of dictionaries, and what they were."""

    def __init__(self, places: Iterable[tuple[dict[str, Any], str]]) -> None:
        pairs = list(places)
        self._owners = [owner for owner, _ in pairs]
        self._names = [name for _, name in pairs]
        self.values = [owner[name] for owner, name in pairs]

    def are_same(self) -> bool:
        return all(map(is_, map(dict.get, self._owners, self._names), self.values))


def watched(agent: Any) -> list[Any]:
    """Return the objects whose methods and settings the updates and actions of an agent read."""
    found = [*agent.policy.modules(), *optimizers_of(agent).values(), *_buffers_of(agent)]
    seen = {*map(id, found)}
    for parent in (agent, *found):
        for value in vars(parent).values():
            if isinstance(value, _INNER) and id(value) not in seen:
                seen.add(id(value))
                found.append(value)
    return found


def _buffers_of(agent: Any) -> list[Any]:
    buffers = (getattr(agent, name, None) for name in ("rollout_buffer", "replay_buffer"))
    return [buffer for buffer in buffers if buffer is not None]


def hooks_in(agent: Any) -> Iterator[str]:
    """Yield the names of the hooks that an agent's update calls."""
    for hooks in _GLOBAL_HOOKS:
        if hooks:
            yield "all modules or all optimizers"
    for owner in watched(agent):
        if any(vars(owner).get(name) for name in _HOOKS):
            yield type(owner).__name__
    tensors = [t for t in vars(agent).values() if isinstance(t, Tensor)]
    for tensor in (*agent.policy.parameters(), *agent.policy.buffers(), *tensors):
        if any(hooks(tensor) for hooks in _TENSOR_HOOKS):
            yield "a tensor"


@cache
def method_names(kind: type) -> frozenset[str]:
    """Return the names of what can be called on the objects of a class."""
    names = (name for name in dir(kind) if not name.startswith("__"))
    return frozenset(name for name in names if callable(getattr(kind, name, None)))


def methods_of(types: Iterable[type]) -> list[tuple[dict[str, Any], str]]:
    """Return where the methods of classes are: a class's dictionary and the name."""
    classes = {c: None for kind in types for c in kind.__mro__ if c not in (object, ABC)}
    found: list[tuple[dict[str, Any], str]] = []
    for each in classes:
        # The dictionary behind the proxy is read four times as fast.
        (own,) = gc.get_referents(vars(each))
        found += [(own, name) for name, value in own.items() if isinstance(value, _METHODS)]
    return found


@cache
def names_read(types: frozenset[type]) -> frozenset[str]:
    """Return the names in the code that the recorded methods reach in methods of these classes."""
    named: dict[str, set[str]] = {}
    for owner, name in methods_of(types):
        named.setdefault(name, set()).update(_names_in(_function_of(owner[name])))
    found: set[str] = set()
    new = {*RECORDED_METHODS, *_CALLS}
    while new:
        found |= new
        new = {other for name in new for other in named.get(name, ())} - found
    return frozenset(found)


def _function_of(method: Any) -> Any:
    """Return the function of a method or property, without what wraps it."""
    function = getattr(method, "__func__", None) or getattr(method, "fget", None) or method
    return inspect.unwrap(function)


def _names_in(code: Any) -> Iterator[str]:
    """Yield the names in the code of a function, and in that of functions within it."""
    code = getattr(code, "__code__", code)
    if isinstance(code, CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            yield from _names_in(constant)


def functions_called(kind: type) -> list[tuple[dict[str, Any], str]]:
    """Return where the functions and classes are that an algorithm's methods call by name."""
    found: list[tuple[dict[str, Any], str]] = []
    for each in kind.__mro__:
        for method in map(vars(each).get, RECORDED_METHODS):
            if isinstance(method, FunctionType):
                place, kinds = method.__globals__, (FunctionType, type, ModuleType)
                found += [(place, n) for n in _names_in(method) if isinstance(place.get(n), kinds)]
    return found


def modes() -> tuple[Any, ...]:
    """Return what decides how PyTorch computes."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_anomaly_enabled(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )

"""Makes the calls of a recording again from Python, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import getitem, itemgetter
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlzoo_plus.fast.recorded.recording import Call, Number, Recording, Slot, leaves, mapped


def replayed(
    calls: Sequence[Call],
    recording: Recording,
    registers: list[Any],
    places: Mapping[str, int],
    sentinels: Mapping[str, float],
) -> list[Callable[[list[Any]], Sequence[Tensor]]]:
    """Return what makes the calls of each part.

    Args:
        calls: What is left of a recording.
        recording: The recording.
        registers: Places of tensors; what does not vary is filled in or added.
        places: Where variable numbers are.
        sentinels: What they were when recorded.
    """
    n_slots = len(registers)
    fixed = {Slot(k) for k, value in enumerate(registers) if value is not None}
    parts: list[list[tuple[Any, tuple[int, ...], int]]] = [[] for _ in recording.outputs]

    def register(value: Any) -> int:
        registers.append(value)
        return len(registers) - 1

    for call in calls:
        _emit(call, parts[call.part], register, places, recording, sentinels)
    kept = {slot for part in recording.outputs for slot in part}
    ended = _with_ends(parts, kept, n_slots, fixed | {*recording.inputs})
    return [_Calls(*part) for part in zip(ended, recording.outputs, strict=True)]


class _Calls:
    """Makes the calls of a part."""

    def __init__(self, steps: Sequence[Any], outputs: Sequence[Slot]) -> None:
        self._steps, self._outputs = steps, outputs

    def __call__(self, registers: list[Any]) -> Sequence[Tensor]:
        for function, arguments, out, dead in self._steps:
            registers[out] = function(*arguments(registers))
            for slot in dead:
                registers[slot] = None
        return tuple([registers[slot] for slot in self._outputs])


def _emit(
    call: Call,
    steps: list[tuple[Any, tuple[int, ...], int]],
    register: Callable[[Any], int],
    places: Mapping[str, int],
    recording: Recording,
    sentinels: Mapping[str, float],
) -> None:
    """Append the steps that make a call: a function, the registers it reads, and that it sets."""

    def place(argument: Any) -> int:
        if isinstance(argument, Slot):
            return int(argument)
        if isinstance(argument, Number):
            return places[argument]
        if isinstance(argument, (list, tuple)) and any(
            isinstance(leaf, (Slot, Number)) for leaf in leaves(argument)
        ):
            made = register(None)
            steps.append((_as_list, tuple(place(item) for item in argument), made))
            return made
        return register(argument)

    variable = [leaf for leaf in leaves(call.kwargs) if isinstance(leaf, (Slot, Number))]
    function = _fastest(call, recording.tensors, sentinels)
    names = tuple(call.kwargs)
    slots = tuple(place(argument) for argument in call.args)
    if variable:
        slots += tuple(place(argument) for argument in call.kwargs.values())
        function = partial(_with_names, function, len(call.args), names)
    elif names:
        function = partial(function, **call.kwargs)
    if not call.is_tuple:
        assert call.outs[0] is not None
        steps.append((function, slots, int(call.outs[0])))
        return
    made = register(None)
    steps.append((function, slots, made))
    for k, slot in enumerate(call.outs):
        if slot is not None:
            steps.append((getitem, (made, register(k)), int(slot)))


def _with_ends(
    parts: Sequence[Sequence[tuple[Any, tuple[int, ...], int]]],
    kept: set[Slot],
    n_slots: int,
    fixed: set[Slot],
) -> list[list[tuple[Any, Any, int, tuple[int, ...]]]]:
    """Add to each step which registers are not read any more: their memory is used again."""
    last: dict[int, tuple[int, int]] = {}
    for number, steps in enumerate(parts):
        for k, (_, slots, out) in enumerate(steps):
            last |= dict.fromkeys((*slots, out), (number, k))
    ends: dict[tuple[int, int], list[int]] = {}
    for slot, place in last.items():
        if slot < n_slots and slot not in kept and slot not in fixed:
            ends.setdefault(place, []).append(slot)
    return [
        [
            (function, _getter(slots), out, tuple(ends.get((number, k), ())))
            for k, (function, slots, out) in enumerate(steps)
        ]
        for number, steps in enumerate(parts)
    ]


def _getter(slots: tuple[int, ...]) -> Callable[[list[Any]], Any]:
    """Return what reads registers as a sequence."""
    if not slots:
        return _nothing
    return itemgetter(*slots) if len(slots) > 1 else itemgetter(slice(slots[0], slots[0] + 1))


def _nothing(registers: list[Any]) -> tuple[()]:
    return ()


def _as_list(*items: Any) -> list[Any]:
    return list(items)


def _with_names(function: Any, n_args: int, names: Sequence[str], *values: Any) -> Any:
    return function(*values[:n_args], **dict(zip(names, values[n_args:], strict=True)))


class _DispatchedError(Exception):
    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.call = func, args, kwargs


class _Probe(TorchDispatchMode):
    """Tells which call a function makes below autograd, without making it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise _DispatchedError(func, args, kwargs or {})


def _fastest(call: Call, tensors: Sequence[Tensor], sentinels: Mapping[str, float]) -> Any:
    """Return a binding of torch that makes this very call in half the time, or the call itself."""

    def real(leaf: Any) -> Any:
        if isinstance(leaf, Slot):
            return tensors[leaf]
        return sentinels[leaf] if isinstance(leaf, Number) else leaf

    args, kwargs = mapped(call.args, real), mapped(call.kwargs, real)
    for place in (torch, Tensor, torch._C._nn):
        function = getattr(place, call.name, None)
        if not isinstance(function, (BuiltinFunctionType, MethodDescriptorType)):
            continue
        try:
            with torch.no_grad(), _Probe():
                function(*args, **kwargs)
        except _DispatchedError as made:
            func, given, named = made.call
            if func is call.func and _identical(given, args) and _identical(named, kwargs):
                return function
        except (TypeError, RuntimeError, ValueError):
            continue
    return call.func


def _identical(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return left is right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_identical, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_identical(left[k], right[k]) for k in left)
    return type(left) is type(right) and left == right

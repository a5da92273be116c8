"""`Tape`: records the calls of a loss and its backward pass once, and makes them again.

Recorded are the calls below autograd, with their arguments. Made again in the same order, they
give the same bits, without distributions, modules, a graph and the engine that walks through it.
What nobody uses is left out; random numbers are drawn as before. Nothing is generated or compiled:
a recording is a list of functions of torch and of places of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import getitem, itemgetter
from types import BuiltinFunctionType, MethodDescriptorType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# Yields, after each part, the tensors that are needed of it; between parts, weights may change.
Parts = Callable[[Sequence[Tensor], SimpleNamespace], Iterator[Sequence[Tensor]]]
_SAME = (aten.detach.default, aten.alias.default)
_READING = ("_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "masked_select")
# They change the shape of a handle, not of the numbers behind it.
_RESHAPING = ("squeeze_", "t_", "transpose_", "swapaxes_", "resize_", "set_", "as_strided_")
# What they return depends on the shapes of their arguments only.
_OF_SHAPES = (
    *("ones", "zeros", "full", "arange", "scalar_tensor"),
    *("ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"),
)


class NotRecordableError(Exception):
    """A function decides by numbers, or reads what can change unseen."""


class Slot(int):
    """The place of a tensor in the registers of a recording."""


class Number(str):
    """The name of a number that is given anew each time."""


@dataclass(eq=False)
class Call:
    """One call; tensors in its arguments are slots, variable numbers are names."""

    func: Any
    args: Any
    kwargs: dict[str, Any]
    outs: list[Slot | None]
    is_tuple: bool
    part: int

    @property
    def name(self) -> str:
        """Name without namespace and overload."""
        return str(self.func._schema.name).partition("::")[2]

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self.func.tags

    @property
    def inputs(self) -> list[Slot]:
        """The tensors it reads."""
        return [leaf for leaf in _leaves([self.args, self.kwargs]) if isinstance(leaf, Slot)]

    @property
    def changed(self) -> list[Slot]:
        """The tensors it changes in place."""
        given = dict(zip((a.name for a in self.func._schema.arguments), self.args, strict=False))
        given |= self.kwargs
        writes = [a.name for a in self.func._schema.arguments if a.is_write]
        found = [leaf for name in writes for leaf in _leaves(given.get(name))]
        return [leaf for leaf in found if isinstance(leaf, Slot)]

    @property
    def is_view(self) -> bool:
        """Whether it returns other handles of the same memory."""
        info = [r.alias_info for r in self.func._schema.returns]
        return bool(info) and all(i is not None and not i.is_write for i in info)


class _Recorder(TorchDispatchMode):
    """Notes every call below autograd.

    Tensors are known by identity: each is kept, so that no other takes its place.
    """

    def __init__(self, inputs: Sequence[Tensor], readable: Iterable[Tensor]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self.constants: set[Slot] = set()
        self.part = 0
        self._slots: dict[int, Slot] = {}
        self._kept: list[Any] = []
        self._readable = {id(tensor): tensor for tensor in readable}
        self.inputs = [self.new_slot(tensor) for tensor in inputs]

    def new_slot(self, tensor: Tensor) -> Slot:
        slot = Slot(len(self.tensors))
        self.tensors.append(tensor)
        self._slots[id(tensor)] = slot
        return slot

    def slot_of(self, tensor: Tensor) -> Slot:
        slot = self._slots.get(id(tensor))
        if slot is None:
            if id(tensor) not in self._readable:
                raise NotRecordableError("it reads a tensor that is none of its arguments")
            slot = self.new_slot(tensor)
            self.constants.add(slot)
        return slot

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name in _READING or name in _RESHAPING:
            raise NotRecordableError(f"it calls {name}")
        if func is aten.lift_fresh.default:  # a tensor made of plain numbers
            result = func(*args)
            self.constants.add(self.new_slot(result))
            return result
        given = _mapped(args, self.slot_of), _mapped(kwargs, self.slot_of)
        result = func(*args, **kwargs)
        if func in _SAME:
            self._kept.append(result)
            self._slots[id(result)] = given[0][0]
            return result
        if func is aten.unsqueeze_.default:
            # The handle's new shape is a new value.
            func = aten.unsqueeze.default
            call = Call(func, *given, [self.new_slot(result)], is_tuple=False, part=self.part)
            self.tensors[given[0][0]] = result
            self.calls.append(call)
            return result
        is_tuple = not isinstance(result, Tensor)
        results = list(result) if is_tuple else [result]
        if not all(r is None or isinstance(r, Tensor) for r in results):
            raise NotRecordableError(f"{name} returns no tensor")
        call = Call(func, *given, [], is_tuple=is_tuple, part=self.part)
        if call.changed:
            if not self.constants.isdisjoint(call.changed) or is_tuple:
                raise NotRecordableError(f"{name} changes a parameter or a constant")
            call.outs = [self.slot_of(result)]
        else:
            call.outs = [None if r is None else self.new_slot(r) for r in results]
        self.calls.append(call)
        return result


@dataclass(eq=False)
class _Recording:
    calls: list[Call]
    tensors: list[Tensor]
    constants: set[Slot]
    inputs: list[Slot]
    outputs: list[list[Slot]]

    def storage(self, slot: Slot) -> int:
        return self.tensors[slot].untyped_storage().data_ptr()


def _record(
    function: Parts,
    inputs: Sequence[Tensor],
    numbers: Mapping[str, float],
    readable: Iterable[Tensor],
) -> _Recording:
    """Run a function once and note its calls; the generator of random numbers stays as it was."""
    distribution = torch.distributions.Distribution
    validates, state = distribution._validate_args, torch.get_rng_state()
    recorder = _Recorder(inputs, readable)
    outputs = []
    # It reads values; whatever is invalid gives NaN, which is found after the update.
    distribution.set_default_validate_args(False)
    try:
        with torch.enable_grad(), recorder:
            for wanted in function(list(inputs), SimpleNamespace(**numbers)):
                outputs.append([recorder.slot_of(tensor) for tensor in wanted])
                recorder.part += 1
    finally:
        distribution.set_default_validate_args(validates)
        torch.set_rng_state(state)
    names = {value: Number(name) for name, value in numbers.items()}
    for call in recorder.calls:
        call.args, call.kwargs = _named(call.args, names), _named(call.kwargs, names)
    return _Recording(
        recorder.calls, recorder.tensors, recorder.constants, recorder.inputs, outputs
    )


def _sentinels(names: Sequence[str], which: int) -> dict[str, float]:
    """Return numbers that stand for the real ones while recording, none like another."""
    return {name: 0.2137 + 0.0131 * k + 0.00317 * which for k, name in enumerate(names)}


class Tape:
    """A recorded function.

    It is recorded twice with different numbers: calls that differ in anything else would hold
    a number that is meant to vary.

    Raises:
        NotRecordableError: The function cannot be recorded.
    """

    def __init__(
        self,
        function: Parts,
        inputs: Sequence[Tensor],
        numbers: Sequence[str],
        readable: Iterable[Tensor],
    ) -> None:
        """Record a function.

        Args:
            function: Yields the tensors that are wanted of each of its parts.
            inputs: An example; later ones have the same shapes and types.
            numbers: Names of the numbers that it uses.
            readable: What else it reads: parameters and buffers, changed in place only.
        """
        readable = list(readable)
        first, second = (
            _record(function, inputs, _sentinels(numbers, which), readable) for which in (0, 1)
        )
        _require_same(first, second)
        self._numbers = tuple(numbers)
        self._build(first, _sentinels(numbers, 0))

    def start(self, inputs: Sequence[Tensor], numbers: Mapping[str, float]) -> list[Any]:
        """Return registers with these inputs and numbers."""
        registers = self._registers.copy()
        registers[: len(inputs)] = inputs
        for slot, name in zip(self._number_slots, self._numbers, strict=True):
            registers[slot] = numbers[name]
        return registers

    def run(self, part: int, registers: list[Any]) -> tuple[Tensor, ...]:
        """Make the calls of a part, in order; gradients must be disabled."""
        for function, arguments, out, dead in self._parts[part]:
            registers[out] = function(*arguments(registers))
            for slot in dead:
                registers[slot] = None
        return tuple([registers[slot] for slot in self._outputs[part]])

    @property
    def n_calls(self) -> int:
        """Calls that are made each time."""
        return sum(len(part) for part in self._parts)

    def _build(self, recording: _Recording, sentinels: Mapping[str, float]) -> None:
        calls = _without_repetitions(recording)
        calls = _needed(calls, recording)
        fixed, calls = _hoisted(calls, recording)
        n_slots = len(recording.tensors)
        self._registers: list[Any] = [None] * n_slots
        for slot in (*recording.constants, *fixed):
            self._registers[slot] = recording.tensors[slot].detach()
        self._number_slots = [n_slots + k for k in range(len(self._numbers))]
        places = dict(zip(self._numbers, self._number_slots, strict=True))
        self._registers += [None] * len(self._numbers)
        self._outputs = recording.outputs
        n_parts = len(recording.outputs)
        parts: list[list[tuple[Any, tuple[int, ...], int]]] = [[] for _ in range(n_parts)]

        def register(value: Any) -> int:
            self._registers.append(value)
            return len(self._registers) - 1

        for call in calls:
            _emit(call, parts[call.part], register, places, recording, sentinels)
        self._parts = _with_ends(
            parts,
            kept={slot for part in self._outputs for slot in part},
            n_slots=n_slots,
            fixed={*recording.constants, *fixed, *recording.inputs},
        )


def _require_same(first: _Recording, second: _Recording) -> None:
    """Check that two recordings with different numbers hold the same calls."""
    plain = [
        [(c.func, _plain(c.args), _plain(c.kwargs), c.outs, c.part) for c in recording.calls]
        for recording in (first, second)
    ]
    if plain[0] != plain[1] or first.outputs != second.outputs:
        raise NotRecordableError("what it calls depends on numbers")
    for slot in first.constants:
        if not torch.equal(first.tensors[slot], second.tensors[slot]):
            raise NotRecordableError("a constant depends on numbers")


def _without_repetitions(recording: _Recording) -> list[Call]:
    """Leave out calls that were made before with the same arguments, in the same part."""
    touched = {recording.storage(slot) for c in recording.calls for slot in c.changed}
    same: dict[Slot, Slot] = {}
    seen: dict[Any, Call] = {}
    calls = []
    for call in recording.calls:
        call.args, call.kwargs = _renamed(call.args, same), _renamed(call.kwargs, same)
        slots = [*call.inputs, *(slot for slot in call.outs if slot is not None)]
        is_pure = not call.is_random and "empty" not in call.name
        if is_pure and not any(recording.storage(slot) in touched for slot in slots):
            key = repr((call.part, id(call.func), _plain(call.args), _plain(call.kwargs)))
            if key in seen:
                pairs = zip(call.outs, seen[key].outs, strict=True)
                same |= {a: b for a, b in pairs if a is not None and b is not None}
                continue
            seen[key] = call
        calls.append(call)
    recording.outputs = [[same.get(slot, slot) for slot in part] for part in recording.outputs]
    return calls


def _needed(calls: Sequence[Call], recording: _Recording) -> list[Call]:
    """Leave out what no output depends on; random numbers are drawn nevertheless."""
    wanted = {slot for part in recording.outputs for slot in part}
    memory = {recording.storage(slot) for slot in wanted}
    needed = []
    for call in reversed(calls):
        changes = any(recording.storage(slot) in memory for slot in call.changed)
        if call.is_random or changes or not wanted.isdisjoint(call.outs):
            needed.append(call)
            wanted |= set(call.inputs)
            memory |= {recording.storage(slot) for slot in call.inputs}
    return needed[::-1]


def _hoisted(calls: Sequence[Call], recording: _Recording) -> tuple[set[Slot], list[Call]]:
    """Return what is the same each time, and the other calls.

    These are views of parameters, and what depends on shapes and constants alone.
    """
    touched = {recording.storage(slot) for call in calls for slot in call.changed}
    known = set(recording.constants)  # the memory is the same each time
    frozen: set[Slot] = set()  # the numbers are, too
    left = []
    for call in calls:
        outs = [slot for slot in call.outs if slot is not None]
        leaves = list(_leaves([call.args, call.kwargs]))
        is_free = not call.is_random and not call.changed and not call.is_tuple
        is_free = is_free and not any(isinstance(leaf, Number) for leaf in leaves)
        is_free = is_free and not any(recording.storage(slot) in touched for slot in outs)
        of_shapes = call.name in _OF_SHAPES
        all_frozen = bool(call.inputs) and frozen.issuperset(call.inputs)
        if is_free and (of_shapes or all_frozen) and "empty" not in call.name:
            frozen |= set(outs)
        elif is_free and call.is_view and call.inputs and known.issuperset(call.inputs):
            known |= set(outs)
        else:
            left.append(call)
    return (known | frozen) - recording.constants, left


def _emit(
    call: Call,
    steps: list[tuple[Any, tuple[int, ...], int]],
    register: Callable[[Any], int],
    places: Mapping[str, int],
    recording: _Recording,
    sentinels: Mapping[str, float],
) -> None:
    """Append the steps that make a call: a function, the registers it reads, and that it sets."""

    def place(argument: Any) -> int:
        if isinstance(argument, Slot):
            return int(argument)
        if isinstance(argument, Number):
            return places[argument]
        if isinstance(argument, (list, tuple)) and any(
            isinstance(leaf, (Slot, Number)) for leaf in _leaves(argument)
        ):
            made = register(None)
            steps.append((_as_list, tuple(place(item) for item in argument), made))
            return made
        return register(argument)

    variable = [leaf for leaf in _leaves(call.kwargs) if isinstance(leaf, (Slot, Number))]
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

    args, kwargs = _mapped_all(call.args, real), _mapped_all(call.kwargs, real)
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


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _mapped_all(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped_all(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped_all(item, change) for item in value)
    return change(value)


def _mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    return _mapped_all(value, lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf)


def _named(value: Any, names: Mapping[float, Number]) -> Any:
    return _mapped_all(
        value, lambda leaf: names.get(leaf, leaf) if isinstance(leaf, float) else leaf
    )


def _renamed(value: Any, same: Mapping[Slot, Slot]) -> Any:
    return _mapped_all(value, lambda leaf: same.get(leaf, leaf) if isinstance(leaf, Slot) else leaf)


def _plain(value: Any) -> Any:
    """Return arguments that can be compared: a slot is no number, 1 is not 1.0."""
    return _mapped_all(value, lambda leaf: (type(leaf).__name__, leaf))

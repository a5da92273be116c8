"""Recordings: the calls that a function makes below autograd, without those that are not needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlzoo_plus.artifacts.atomic import map_leaves

aten = torch.ops.aten
# Returns the tensors that are wanted, given inputs and numbers.
Function = Callable[[Sequence[Tensor], SimpleNamespace], Sequence[Tensor]]
_SAME = (aten.detach.default, aten.alias.default)
_READING = ("_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "masked_select")
# They change the shape of a handle, not of the numbers behind it.
_RESHAPING = ("squeeze_", "t_", "transpose_", "swapaxes_", "resize_", "set_", "as_strided_")
# Tensors of so many bytes are let go when the function has no use for them any more.
_LARGE = 2**16
# How many there are of a tensor, in Python (as one) and in C++; several where torch cannot tell.
_owners: Callable[[Tensor], int] = getattr(Tensor, "_use_count", lambda tensor: 2)


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
        return [leaf for leaf in leaves([self.args, self.kwargs]) if isinstance(leaf, Slot)]

    @property
    def changed(self) -> list[Slot]:
        """The tensors it changes in place."""
        found: list[Slot] = []
        for place, name in _written(self.func):
            given = self.args[place] if place < len(self.args) else self.kwargs.get(name)
            found += [leaf for leaf in leaves(given) if isinstance(leaf, Slot)]
        return found


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Return places and names of the arguments that a function of torch changes in place."""
    arguments = func._schema.arguments
    return [(place, a.name) for place, a in enumerate(arguments) if a.is_write]


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every call below autograd.

    Tensors are known by identity: each is kept, so that no other takes its place. Large ones that
    nobody else holds are forgotten, and another in their memory counts as memory of its own.

    Attributes:
        spans: The memory of each slot, by its address or another number, with the first and last
            bytes of the slot in it.
        n_bytes: How large that memory is.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        readable: Iterable[Tensor],
        changed: Iterable[Tensor],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self.constants: set[Slot] = set()
        self.spans: list[tuple[int, int, int]] = []
        self.n_bytes: list[int] = []
        self._slots: dict[int, Slot] = {}
        self._kept: list[Any] = []
        self._large: dict[int, tuple[Tensor, Slot]] = {}
        # By address: the number of the memory there, and how many handles of it are kept.
        self._memory: dict[int, list[int]] = {}
        self._n_forgotten = 0
        self._alone = _references((torch.empty(0), Slot(0)))
        self._readable = {id(tensor): tensor for tensor in readable}
        self._changeable = {_memory(tensor) for tensor in changed}
        self.inputs = [self.new_slot(tensor) for tensor in inputs]

    def new_slot(self, tensor: Tensor) -> Slot:
        slot = Slot(len(self.tensors))
        self.tensors.append(tensor)
        self._slots[id(tensor)] = slot
        self.spans.append(_span(tensor, self._hold(tensor)))
        self.n_bytes.append(tensor.untyped_storage().nbytes())
        return slot

    def _hold(self, tensor: Tensor) -> int:
        """Count a handle; return the number of its memory."""
        address = _memory(tensor)
        entry = self._memory.setdefault(address, [address, 0])
        if not entry[1] and entry[0] != address:
            self._n_forgotten += 1
            entry[0] = -self._n_forgotten
        entry[1] += 1
        return entry[0]

    def _may_be_forgotten(self, call: Call, results: Iterable[Tensor | None]) -> None:
        """Note large results whose numbers nobody needs but the function."""
        lasting = {self.spans[slot][0] for slot in (*self.inputs, *self.constants)}
        for slot, result in zip(call.outs, results, strict=True):
            if slot is None or result is None or self.spans[slot][0] in lasting:
                continue
            if self.n_bytes[slot] >= _LARGE:
                self._large[id(result)] = result, slot

    def _forget(self) -> None:
        """Let go of large tensors that nobody else holds."""
        for key, held in list(self._large.items()):
            tensor, slot = held
            is_own = self.tensors[slot] is tensor
            del tensor
            if _owners(held[0]) > 1 or _references(held) > self._alone + is_own:
                continue
            del self._large[key]
            if self._slots.get(key) == slot:
                del self._slots[key]
            entry = self._memory[_memory(held[0])]
            entry[1] -= 1
            if not entry[1]:
                entry[0] = 0  # what comes here next is something else
            if is_own:
                self.tensors[slot] = _shape_of(held[0])

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
        self._forget()
        given = _mapped(args, self.slot_of), _mapped(kwargs, self.slot_of)
        reshaped = args[0].detach() if func is aten.unsqueeze_.default else None
        result = func(*args, **kwargs)
        if func in _SAME:
            slot = given[0][0]
            self._slots[id(result)] = slot
            self._hold(result)
            is_large = any(slot == known for _, known in self._large.values())
            if is_large:
                self._large[id(result)] = result, slot
            else:
                self._kept.append(result)
            return result
        if reshaped is not None:
            # The handle's new shape is a new value; the slot of the old one keeps the old shape.
            func = aten.unsqueeze.default
            call = Call(func, *given, [self.new_slot(result)], is_tuple=False)
            self.tensors[given[0][0]] = reshaped
            self.calls.append(call)
            return result
        is_tuple = not isinstance(result, Tensor)  # of none, if it only changes its arguments
        results = list(result or ()) if is_tuple else [result]
        if not all(r is None or isinstance(r, Tensor) for r in results):
            raise NotRecordableError(f"{name} returns no tensor")
        call = Call(func, *given, [], is_tuple=is_tuple)
        if call.changed:
            fixed = self.constants.intersection(call.changed)
            own = all(_memory(self.tensors[slot]) in self._changeable for slot in fixed)
            if not own or (is_tuple and results):
                raise NotRecordableError(f"{name} changes a parameter or a constant")
            call.outs = [self.slot_of(one) for one in results]
        else:
            call.outs = [None if r is None else self.new_slot(r) for r in results]
            self._may_be_forgotten(call, results)
        self.calls.append(call)
        return result


@dataclass(eq=False)
class Recording:
    """What was noted of a function.

    Attributes:
        calls: In their order.
        tensors: What was in each slot.
        constants: Slots of what is read beside the inputs.
        inputs: Slots of the inputs.
        outputs: What is wanted.
        changeable: Memory that the function may change.
        spans: Where each slot is, see `span`.
        n_bytes: How large the memory is of which each slot has a part.
    """

    calls: list[Call]
    tensors: list[Tensor]
    constants: set[Slot]
    inputs: list[Slot]
    outputs: list[Slot]
    changeable: set[int]
    spans: list[tuple[int, int, int]]
    n_bytes: list[int]

    def let_go(self) -> None:
        """Keep numbers of inputs and constants only, and shapes of the others."""
        left = {*self.constants, *self.inputs}
        self.tensors = [
            tensor if slot in left else _shape_of(tensor)
            for slot, tensor in enumerate(self.tensors)
        ]

    def storage(self, slot: Slot) -> int:
        """Return the number of a tensor's memory."""
        return self.spans[slot][0]

    def span(self, slot: Slot) -> tuple[int, int, int]:
        """Return the number of a tensor's memory, and its own first and last bytes in it."""
        return self.spans[slot]

    def is_view(self, call: Call) -> bool:
        """Whether a call returns another handle of the memory of one of its arguments."""
        memory = {self.storage(slot) for slot in call.inputs}
        outs = [self.storage(slot) for slot in call.outs if slot is not None]
        return not call.changed and bool(outs) and memory.issuperset(outs)


def record(
    function: Function,
    inputs: Sequence[Tensor],
    numbers: Mapping[str, float],
    readable: Iterable[Tensor],
    changed: Sequence[Tensor] = (),
) -> Recording:
    """Run a function once and note its calls; random numbers and `changed` stay as they were.

    Args:
        function: The function.
        inputs: Its inputs.
        numbers: Its numbers by name, none like another.
        readable: What else it reads.
        changed: Which of these it changes in place.

    Raises:
        NotRecordableError: The function cannot be recorded.
    """
    distribution = torch.distributions.Distribution
    validates, state = distribution._validate_args, torch.get_rng_state()
    recorder = _Recorder(inputs, readable, changed)
    before = [t.detach().clone() for t in changed]
    # It reads values; whatever is invalid gives NaN, which is found after the update.
    distribution.set_default_validate_args(False)
    try:
        with torch.enable_grad(), recorder:
            wanted = function(list(inputs), SimpleNamespace(**numbers))
            outputs = [recorder.slot_of(tensor) for tensor in wanted]
    finally:
        distribution.set_default_validate_args(validates)
        torch.set_rng_state(state)
        for tensor, values in zip(changed, before, strict=True):
            tensor.detach().copy_(values)
    names = {value: Number(name) for name, value in numbers.items()}
    for call in recorder.calls:
        call.args, call.kwargs = _named(call.args, names), _named(call.kwargs, names)
    return Recording(
        *(recorder.calls, recorder.tensors, recorder.constants, recorder.inputs, outputs),
        *({_memory(tensor) for tensor in changed}, recorder.spans, recorder.n_bytes),
    )


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _span(tensor: Tensor, memory: int) -> tuple[int, int, int]:
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    return memory, start, start + (reach * size if tensor.numel() else 0)


def _references(held: tuple[Tensor, Slot]) -> int:
    return sys.getrefcount(held[0])


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def require_same(first: Recording, second: Recording) -> None:
    """Check that two recordings with different numbers hold the same calls."""
    plain = [
        [(c.func, _plain(c.args), _plain(c.kwargs), c.outs) for c in recording.calls]
        for recording in (first, second)
    ]
    if plain[0] != plain[1] or first.outputs != second.outputs:
        raise NotRecordableError("what it calls depends on numbers")
    for slot in first.constants:
        if not torch.equal(first.tensors[slot], second.tensors[slot]):
            raise NotRecordableError("a constant depends on numbers")


def needed(calls: Sequence[Call], recording: Recording) -> list[Call]:
    """Leave out what no output depends on; random numbers are drawn nevertheless."""
    wanted = set(recording.outputs)
    memory = {recording.storage(slot) for slot in wanted} | recording.changeable
    needed = []
    for call in reversed(calls):
        changes = any(recording.storage(slot) in memory for slot in call.changed)
        if call.is_random or changes or not wanted.isdisjoint(call.outs):
            needed.append(call)
            wanted |= set(call.inputs)
            memory |= {recording.storage(slot) for slot in call.inputs}
    return needed[::-1]


def leaves(value: Any) -> Iterator[Any]:
    """Yield what lists, tuples and dictionaries hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    return map_leaves(value, lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf)


def _named(value: Any, names: Mapping[float, Number]) -> Any:
    return map_leaves(
        value, lambda leaf: names.get(leaf, leaf) if isinstance(leaf, float) else leaf
    )


def _plain(value: Any) -> Any:
    """Return arguments that can be compared: a slot is no number, 1 is not 1.0."""
    return map_leaves(value, lambda leaf: (type(leaf).__name__, leaf))

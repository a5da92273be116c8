"""Makes the calls of a recording again in TorchScript's interpreter: one call from Python each.

The graph holds the very calls of the recording, in their order. None of TorchScript's
optimisations is applied. Results go where they went the last time: memory is planned once, so that
nothing is allocated, and views of it are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.agents.recorded.recording import Call, Number, Recording, Slot, leaves

aten = torch.ops.aten
# Larger results are allocated each time, and given back.
_LARGEST = 2**24
_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_WITH_TENSOR = {
    aten.mul.Scalar: aten.mul.Tensor,
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}
_below_autograd = getattr(torch._C, "_AutoDispatchBelowAutograd", nullcontext)
_COPIES = (aten._to_copy.default, aten.clone.default)


class NotCompilableError(Exception):
    """TorchScript has no such call."""


def compiled(
    calls: Sequence[Call],
    recording: Recording,
    known: Mapping[Slot, Tensor],
    places: Mapping[str, int],
) -> list[Callable[[list[Any]], Sequence[Tensor]]]:
    """Return what makes the calls of each part.

    Args:
        calls: What is left of a recording.
        recording: The recording.
        known: Tensors whose memory is the same each time.
        places: In which registers variable numbers are.

    Raises:
        NotCompilableError: TorchScript has no such call.
    """
    return [
        _Builder(calls, recording, known, places, part).build()
        for part in range(len(recording.outputs))
    ]


class _Graph:
    """Makes the calls of a part."""

    def __init__(
        self, function: Any, reads: Sequence[int], kept: Sequence[int], n_wanted: int
    ) -> None:
        self._function, self._kept, self._n_wanted = function, kept, n_wanted
        self._read = itemgetter(*reads) if len(reads) > 1 else _few(reads)

    def __call__(self, registers: list[Any]) -> Sequence[Tensor]:
        optimizes = torch._C._get_graph_executor_optimize()
        torch._C._set_graph_executor_optimize(False)  # of this thread
        try:
            with _below_autograd():
                results = self._function(*self._read(registers))
        finally:
            torch._C._set_graph_executor_optimize(optimizes)
        for slot, value in zip(self._kept, results[self._n_wanted :], strict=False):
            registers[slot] = value
        return results[: self._n_wanted]


def _few(places: Sequence[int]) -> Callable[[list[Any]], Any]:
    return lambda registers: [registers[place] for place in places]


class _Builder:
    """Builds the graph of a part."""

    def __init__(
        self,
        calls: Sequence[Call],
        recording: Recording,
        known: Mapping[Slot, Tensor],
        places: Mapping[str, int],
        part: int,
    ) -> None:
        self._recording, self._places, self._part = recording, places, part
        self._calls = [call for call in calls if call.part == part]
        self._later = {slot for c in calls if c.part > part for slot in c.inputs}
        self._later |= {slot for wanted in recording.outputs[part + 1 :] for slot in wanted}
        self._memory, self._known = dict(known), known.keys()
        self._values: dict[Slot, Any] = {}
        self._constants: dict[Any, Any] = {}
        self._numbers: dict[str, Any] = {}
        self._number_tensors: dict[str, Any] = {}
        self._reads: list[int] = []
        self._nodes: list[Any] = []
        self._graph: Any = torch._C.Graph()
        self._plan = _Memory(self._calls, calls, recording, known, part)

    def build(self) -> Callable[[list[Any]], Sequence[Tensor]]:
        """Return what makes the calls."""
        for number, call in enumerate(self._calls):
            if number not in self._plan.left_out:
                self._add(call)
            self._plan.free(number)
        wanted = [self._value(slot) for slot in self._recording.outputs[self._part]]
        made = {slot for call in self._calls for slot in call.outs if slot is not None}
        kept = sorted((self._later & made) - self._known)
        results = [*wanted, *(self._value(slot) for slot in kept)]
        returned = {value.debugName() for value in results}
        # What is read through other handles of its memory only must not be left out as unused.
        unused = [
            node.outputsAt(0)
            for node in self._nodes
            if not node.hasUses() and node.outputsAt(0).debugName() not in returned
        ]
        types = [torch._C.TensorType.get()] * len(results)
        if unused:
            count = self._plain_node("prim::ListConstruct", unused, torch._C.ListType.ofTensors())
            results.append(self._plain_node("aten::len", [count], torch._C.IntType.get()))
            types = [*types, torch._C.IntType.get()]
        out = self._plain_node("prim::TupleConstruct", results, torch._C.TupleType(types))
        self._graph.registerOutput(out)
        self._graph.lint()
        checked = self._graph.copy()
        torch._C._jit_pass_dce(checked)
        if len(list(checked.nodes())) != len(list(self._graph.nodes())):
            raise NotCompilableError("TorchScript would leave out a call")
        function = torch._C._create_function_from_graph("recorded", self._graph)
        return _Graph(function, self._reads, kept, len(wanted))

    def _add(self, call: Call) -> None:
        outs = call.outs
        if self._recording.is_view(call) and self._memory.keys() >= set(call.inputs):
            self._add_view(call)
        elif call.changed or (call.name == "empty" and self._buffers(call) is not None):
            if call.changed:
                node = self._node(call.func, call.args, call.kwargs)
                assert outs[0] is not None
                self._values[outs[0]] = node.outputsAt(0)
            else:
                self._take(call)
        elif not self._add_in_place(call):
            node = self._node(call.func, call.args, call.kwargs)
            if call.func._schema.returns[0].type.isSubtypeOf(torch._C.ListType.ofTensors()):
                node.output().setType(torch._C.ListType.ofTensors())
                node = self._graph.create("prim::ListUnpack", [node.output()], len(outs))
                self._graph.insertNode(node)
            for k, slot in enumerate(outs):
                if slot is not None:
                    self._values[slot] = node.outputsAt(k)

    def _add_view(self, call: Call) -> None:
        """Make a view of memory that stays."""
        args, kwargs = (_real(given, self._memory) for given in (call.args, call.kwargs))
        result = call.func(*args, **kwargs)
        for slot, view in zip(call.outs, result if call.is_tuple else [result], strict=True):
            if slot is not None:
                if view.stride() != self._recording.tensors[slot].stride():
                    raise NotCompilableError(f"{call.name} gives another view")
                self._memory[slot] = view

    def _buffers(self, call: Call) -> list[Tensor] | None:
        slots = [slot for slot in call.outs if slot is not None]
        if len(slots) != len(call.outs) or not all(map(self._plan.is_planned, slots)):
            return None
        return [self._plan.buffer(slot) for slot in slots]

    def _take(self, call: Call) -> list[Tensor]:
        buffers = self._buffers(call)
        assert buffers is not None
        for slot, buffer in zip(call.outs, buffers, strict=True):
            assert slot is not None
            self._memory[slot] = buffer
        return buffers

    def _add_in_place(self, call: Call) -> bool:
        """Let a call write its result into memory that stays, where that is the same call."""
        if self._recording.is_view(call) or self._buffers(call) is None:
            return False
        func, args, kwargs = call.func, list(call.args), call.kwargs
        if func in _COPIES:
            (buffer,) = self._take(call)
            node = self._node(aten.copy_.default, [buffer, args[0]], {})
            self._values[call.outs[0]] = node.outputsAt(0)  # type: ignore[index]
            return True
        if func is aten.relu.default:
            func, args = aten.clamp_min.default, [args[0], 0]
        elif func is aten.rsub.Scalar and len(args) == 2 and self._is_float(args[0]):
            func, args = aten.sub.Tensor, [args[1], args[0]]
        elif func in _WITH_TENSOR and self._is_float(args[0]):
            func = _WITH_TENSOR[func]
        writing = _writing(func)
        if writing is None:
            return False
        outs = self._take(call)
        node = self._node(writing, args, kwargs, outs)
        for k, slot in enumerate(call.outs):
            assert slot is not None
            self._values[slot] = node.outputsAt(k)
        return True

    def _is_float(self, argument: Any) -> bool:
        tensors = self._recording.tensors
        return isinstance(argument, Slot) and tensors[argument].dtype == torch.float32

    def _node(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outs: Sequence[Tensor] = (),
    ) -> Any:
        """Add a call with the arguments of its schema, defaults included."""
        given = [leaf for leaf in leaves([args, kwargs]) if isinstance(leaf, Slot)]
        floats = all(self._is_float(leaf) for leaf in given)
        written = iter(outs)
        inputs, is_exact = [], True
        for place, argument in enumerate(func._schema.arguments):
            if argument.is_out and outs:
                value = next(written)
            elif place < len(args):
                value = args[place]
            else:
                value = kwargs.get(argument.name, argument.default_value)
            if str(argument.type) == "Tensor" and isinstance(value, (int, float, Number)):
                if isinstance(value, Slot) or not floats:
                    is_exact = is_exact and isinstance(value, Slot)
                else:
                    value = self._scalar(value)
            inputs.append(self._argument(value, str(argument.type)))
        node = self._graph.create(func._schema.name, inputs, len(func._schema.returns))
        self._graph.insertNode(node)
        if is_exact and node.schema() != str(func._schema):
            raise NotCompilableError(f"no {func._schema}")
        self._nodes.append(node)
        return node

    def _scalar(self, value: Any) -> Any:
        """Return a number as a tensor: nothing has to be made of it each time."""
        if not isinstance(value, Number):
            return _Made(self._constant(("scalar", float(value)), torch.tensor(float(value))))
        if value not in self._number_tensors:
            inputs = [self._constant((), torch.zeros(())), self._number(value)]
            node = self._graph.create("aten::fill_", inputs, 1)
            self._graph.insertNode(node)
            self._nodes.append(node)
            self._number_tensors[value] = node.output()
        return _Made(self._number_tensors[value])

    def _argument(self, value: Any, kind: str) -> Any:
        if isinstance(value, _Made):
            return value.value
        if isinstance(value, Slot):
            return self._value(value)
        if isinstance(value, Number):
            return self._number(value)
        if isinstance(value, Tensor):
            return self._constant(id(value), value)
        if isinstance(value, (list, tuple)) and any(isinstance(x, Slot) for x in value):
            items = [self._argument(item, "Tensor") for item in value]
            return self._plain_node("prim::ListConstruct", items, torch._C.ListType.ofTensors())
        if any(isinstance(leaf, (Slot, Number)) for leaf in leaves(value)):
            raise NotCompilableError("a list of numbers that vary")
        if isinstance(value, (list, tuple)):
            if not value:
                ints = torch._C.ListType.ofInts()
                return self._plain_node("prim::ListConstruct", [], ints)
            value = list(value)
        value = _FORMATS.get(value, value) if isinstance(value, torch.memory_format) else value
        if kind == "float" and type(value) is int:
            value = float(value)
        return self._constant((type(value), repr(value)), value)

    def _value(self, slot: Slot) -> Any:
        if slot not in self._values:
            if slot in self._memory:
                return self._constant(id(self._memory[slot]), self._memory[slot])
            self._values[slot] = self._input(int(slot), torch._C.TensorType.get())
        return self._values[slot]

    def _number(self, name: str) -> Any:
        if name not in self._numbers:
            self._numbers[name] = self._input(self._places[name], torch._C.FloatType.get())
        return self._numbers[name]

    def _input(self, place: int, kind: Any) -> Any:
        self._reads.append(place)
        value = self._graph.addInput(f"input_{place}")
        value.setType(kind)
        return value

    def _constant(self, key: Any, value: Any) -> Any:
        if key == () or key not in self._constants:
            # The value is kept, so that no other takes its identity.
            self._constants[key] = self._graph.insertConstant(value), value
        return self._constants[key][0]

    def _plain_node(self, kind: str, inputs: Sequence[Any], output: Any) -> Any:
        node = self._graph.create(kind, list(inputs), 1)
        node.output().setType(output)
        self._graph.insertNode(node)
        return node.output()


class _Made:
    """A value of the graph, as an argument."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Memory:
    """Plans where the results of a part go.

    Attributes:
        left_out: Calls that copy what was written to its place at once.
    """

    def __init__(
        self,
        own: Sequence[Call],
        calls: Sequence[Call],
        recording: Recording,
        known: Mapping[Slot, Tensor],
        part: int,
    ) -> None:
        self._recording, self._calls, self._known = recording, own, known
        storage = recording.storage
        slots = [[*c.inputs, *(slot for slot in c.outs if slot is not None)] for c in own]
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        for number, touched in enumerate(slots):
            for slot in touched:
                self._first.setdefault(storage(slot), number)
                self._last[storage(slot)] = number
        others = [c for c in calls if c.part != part]
        leaving = [*recording.inputs, *known, *(s for out in recording.outputs for s in out)]
        for call in others:
            leaving += [*call.inputs, *(slot for slot in call.outs if slot is not None)]
        self._leaving = {storage(slot) for slot in leaving}
        self._made: dict[int, Tensor] = {}
        self._ends: dict[int, list[int]] = {}
        for place, number in self._last.items():
            self._ends.setdefault(number, []).append(place)
        self._free: dict[Any, list[Tensor]] = {}
        self._given: set[int] = set()
        self.left_out: set[int] = set()
        for number, call in enumerate(own):
            if call.func is aten.copy_.default and self._goes_straight(number, call, slots):
                self.left_out.add(number)

    def is_planned(self, slot: Slot) -> bool:
        """Whether memory can be planned for a result."""
        tensor, place = self._recording.tensors[slot], self._recording.storage(slot)
        return (
            place not in self._leaving
            and place != 0
            and tensor.storage_offset() == 0
            and tensor.untyped_storage().nbytes() <= _LARGEST
            and type(tensor) is Tensor
        )

    def buffer(self, slot: Slot) -> Tensor:
        """Return the memory of a result; that of others which nobody reads any more is used."""
        tensor, place = self._recording.tensors[slot], self._recording.storage(slot)
        if place not in self._made:
            n_items = tensor.untyped_storage().nbytes() // tensor.element_size()
            free = self._free.get((tensor.dtype, n_items))
            made = free.pop() if free else torch.zeros(n_items, dtype=tensor.dtype)
            self._made[place] = made
        base = self._made[place]
        return base.as_strided(tensor.size(), tensor.stride(), base.storage_offset())

    def free(self, number: int) -> None:
        """Note that a call has been added: what it was the last to read is free."""
        for place in self._ends.get(number, ()):
            base = self._made.get(place)
            if base is not None and place not in self._given:
                self._free.setdefault((base.dtype, base.numel()), []).append(base)

    def _goes_straight(self, number: int, call: Call, slots: Sequence[Sequence[Slot]]) -> bool:
        """Whether what a call copies can be written to its place at once; note where."""
        target, source = call.args[0], call.args[1]
        recording = self._recording
        if len(call.args) > 2 or target not in self._known or not self.is_planned(source):
            return False
        to, what = recording.tensors[target], recording.tensors[source]
        place = recording.storage(source)
        whole = what.untyped_storage().nbytes() == what.numel() * what.element_size()
        fits = to.shape == what.shape and to.dtype == what.dtype and whole
        fits = fits and to.is_contiguous() and what.is_contiguous() and place not in self._made
        first = self._first[place]
        if not fits or self._last[place] != number or self._calls[first].changed:
            return False
        between = [slot for touched in slots[first:number] for slot in touched]
        if any(_overlap(recording.tensors[slot], to) for slot in between):
            return False
        known = self._known[target]
        self._made[place] = known.as_strided((known.numel(),), (1,), known.storage_offset())
        self._given.add(place)
        return True


def _overlap(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors may have memory in common; the other one is contiguous."""
    if tensor.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    if not tensor.is_contiguous():
        return True
    ends = [t.data_ptr() + t.numel() * t.element_size() for t in (tensor, other)]
    return tensor.data_ptr() < ends[1] and other.data_ptr() < ends[0]


@cache
def _writing(func: Any) -> Any:
    """Return the overload that writes the same result to where it is told, if torch has one."""
    schema = func._schema
    if any(a.name == "reduction" for a in schema.arguments):
        return None  # losses resize what they are given
    plain = [(a.name, str(a.type)) for a in schema.arguments]
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    for overload in packet.overloads():
        found = getattr(packet, overload)
        arguments = found._schema.arguments
        outs = [a for a in arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        # Those that torch generated make the plain call and copy its result.
        is_own = torch.Tag.generated not in found.tags
        if outs and len(outs) == len(schema.returns) and rest == plain and is_own:
            return found
    return None


def _real(value: Any, memory: Mapping[Slot, Tensor]) -> Any:
    if isinstance(value, dict):
        return {key: _real(item, memory) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item, memory) for item in value)
    return memory[value] if isinstance(value, Slot) else value

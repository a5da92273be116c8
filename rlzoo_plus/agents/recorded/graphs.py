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

from rlzoo_plus.agents.recorded.lanes import FasterOf, Segment, may_use_lanes, segments_of
from rlzoo_plus.agents.recorded.memory import MemoryPlan
from rlzoo_plus.agents.recorded.recording import Call, Number, Recording, Slot, leaves

aten = torch.ops.aten
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
    *,
    with_lanes: bool = True,
) -> list[Callable[[list[Any]], Sequence[Tensor]]]:
    """Return what makes the calls of each part.

    Args:
        calls: What is left of a recording.
        recording: The recording.
        known: Tensors whose memory is the same each time.
        places: In which registers variable numbers are.
        with_lanes: Whether two threads may share the calls, where that is faster.

    Raises:
        NotCompilableError: TorchScript has no such call.
    """
    made: list[Callable[[list[Any]], Sequence[Tensor]]] = []
    lanes = with_lanes and may_use_lanes()
    for part in range(len(recording.outputs)):
        own = [call for call in calls if call.part == part]
        whole = [Segment(list(range(len(own))))]
        built = _Builder(calls, recording, known, places, part, whole).build()
        segments = segments_of(own, recording) if lanes else None
        if segments is None:
            made.append(built)
        else:
            other = _Builder(calls, recording, known, places, part, segments).build()
            made.append(FasterOf(built, other))
    return made


# A function of torch, the registers it reads, and those it sets.
_Step = tuple[Any, Callable[[list[Any]], Any], Sequence[int]]


class _Graphs:
    """Makes the calls of a part."""

    def __init__(self, steps: Sequence[_Step], n_wanted: int) -> None:
        self.steps = steps
        *self._earlier, (self._function, self._read, self._kept) = steps
        self._n_wanted = n_wanted

    def __call__(self, registers: list[Any]) -> Sequence[Tensor]:
        optimizes = torch._C._get_graph_executor_optimize()
        torch._C._set_graph_executor_optimize(False)  # of this thread
        try:
            with _below_autograd():
                for function, read, kept in self._earlier:
                    for slot, value in zip(kept, function(*read(registers)), strict=False):
                        registers[slot] = value
                results = self._function(*self._read(registers))
        finally:
            torch._C._set_graph_executor_optimize(optimizes)
        for slot, value in zip(self._kept, results[self._n_wanted :], strict=False):
            registers[slot] = value
        return results[: self._n_wanted]


def _getter(places: Sequence[int]) -> Callable[[list[Any]], Any]:
    """Return what reads registers as a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda registers: [registers[place] for place in places]


class _Scope:
    """A graph that is being built, with the values in it.

    Attributes:
        reads: The registers it reads; for a lane, values of the graph that starts it.
    """

    def __init__(self, outer: _Scope | None = None) -> None:
        self.outer = outer
        self.graph: Any = torch._C.Graph()
        self.values: dict[Slot, Any] = {}
        self.constants: dict[Any, Any] = {}
        self.numbers: dict[str, Any] = {}
        self.number_tensors: dict[str, Any] = {}
        self.reads: list[Any] = []
        self.nodes: list[Any] = []
        self.counts: list[Any] = []


class _Builder:
    """Builds the graph of a part."""

    def __init__(
        self,
        calls: Sequence[Call],
        recording: Recording,
        known: Mapping[Slot, Tensor],
        places: Mapping[str, int],
        part: int,
        segments: Sequence[Segment],
    ) -> None:
        self._recording, self._places, self._part = recording, places, part
        self._segments = segments
        own = [call for call in calls if call.part == part]
        self._calls = [own[number] for segment in segments for number in segment.calls]
        self._later = {slot for c in calls if c.part > part for slot in c.inputs}
        self._later |= {slot for wanted in recording.outputs[part + 1 :] for slot in wanted}
        self._memory, self._known = dict(known), known.keys()
        self._at = _Scope()
        self._plan = MemoryPlan(self._calls, calls, recording, known, part, segments)
        self._plan.write_straight(self._can_write)

    def build(self) -> Callable[[list[Any]], Sequence[Tensor]]:
        """Return what makes the calls."""
        steps: list[_Step] = []
        place, wanted = 0, self._recording.outputs[self._part]
        for segment in self._segments:
            self._at, start = _Scope(), place
            place = self._add_all(place, len(segment.first))
            if segment.lanes is not None:
                longer, shorter = map(len, segment.lanes)
                lane = self._started_lane(place + longer, shorter)
                self._plan.enter(0)
                self._add_all(place, longer)
                self._plan.leave()
                self._await(*lane)
                place += longer + shorter
            kept = self._kept(start, place, wanted)
            is_last = segment is self._segments[-1]
            function = self._finished([*(wanted if is_last else ()), *kept])
            steps.append((function, _getter(self._at.reads), kept))
        return _Graphs(steps, len(wanted))

    def _add_all(self, start: int, count: int) -> int:
        for number in range(start, start + count):
            if number not in self._plan.left_out:
                self._add(self._calls[number])
            self._plan.free(number)
        return start + count

    def _kept(self, start: int, end: int, wanted: Sequence[Slot]) -> list[Slot]:
        """Return what calls made that others read, in this part or later ones."""
        made = {slot for c in self._calls[start:end] for slot in c.outs if slot is not None}
        later = {slot for call in self._calls[end:] for slot in call.inputs}
        later |= set(wanted) if end < len(self._calls) else set()
        return sorted((made & self._later) - self._known | (made & later) - self._memory.keys())

    def _started_lane(self, start: int, count: int) -> tuple[Any, list[Slot], Any]:
        """Start a lane; return what to wait for, what it returns, and the type of that."""
        outer = self._at
        self._at = _Scope(outer)
        self._plan.enter(1)
        self._add_all(start, count)
        lane = range(start, start + count)
        made = {slot for k in lane for slot in self._calls[k].outs if slot is not None}
        others = [call for k, call in enumerate(self._calls) if k not in lane]
        read = {slot for call in others for slot in call.inputs} | self._later
        read |= set(self._recording.outputs[self._part])
        slots = sorted((made & read) - self._memory.keys())
        results = [self._value(slot) for slot in slots]
        results.append(self._count(results))
        kind = self._returned(results)
        inner, self._at = self._at, outer
        node = outer.graph.create("prim::fork", inner.reads, 1)
        node.g_("Subgraph", inner.graph)
        node.output().setType(torch._C.FutureType(kind))
        outer.graph.insertNode(node)
        return node.output(), slots, kind

    def _await(self, future: Any, slots: Sequence[Slot], kind: Any) -> None:
        graph = self._at.graph
        result = self._plain_node("aten::wait", [future], kind)
        node = graph.create("prim::TupleUnpack", [result], len(slots) + 1)
        graph.insertNode(node)
        for k, slot in enumerate(slots):
            node.outputsAt(k).setType(torch._C.TensorType.get())
            self._at.values[slot] = node.outputsAt(k)
        node.outputsAt(len(slots)).setType(torch._C.IntType.get())
        self._at.counts.append(node.outputsAt(len(slots)))

    def _count(self, results: Sequence[Any]) -> Any:
        """Add a number that depends on all calls whose results are read in memory only.

        Without it, they would be left out as unused.
        """
        returned = {value.debugName() for value in results}
        unused = [
            node.outputsAt(0)
            for node in self._at.nodes
            if not node.hasUses() and node.outputsAt(0).debugName() not in returned
        ]
        made = self._plain_node("prim::ListConstruct", unused, torch._C.ListType.ofTensors())
        return self._plain_node("aten::len", [made], torch._C.IntType.get())

    def _finished(self, slots: Sequence[Slot]) -> Any:
        """Return the function of the graph; it returns these tensors."""
        results = [self._value(slot) for slot in slots]
        self._returned([*results, self._count(results), *self._at.counts])
        return torch._C._create_function_from_graph("recorded", self._at.graph)

    def _returned(self, results: Sequence[Any]) -> Any:
        """Let the graph return a tuple and check it; return the type of the tuple."""
        graph = self._at.graph
        kind = torch._C.TupleType([value.type() for value in results])
        graph.registerOutput(self._plain_node("prim::TupleConstruct", results, kind))
        graph.lint()
        checked = graph.copy()
        torch._C._jit_pass_dce(checked)
        if len(list(checked.nodes())) != len(list(graph.nodes())):
            raise NotCompilableError("TorchScript would leave out a call")
        return kind

    def _add(self, call: Call) -> None:
        outs = call.outs
        if self._recording.is_view(call) and self._memory.keys() >= set(call.inputs):
            self._add_view(call)
        elif call.changed or (call.name == "empty" and self._can_write(call)):
            if call.changed:
                node = self._node(call.func, call.args, call.kwargs)
                assert outs[0] is not None
                self._at.values[outs[0]] = node.outputsAt(0)
            else:
                self._take(call)
        elif not self._add_in_place(call):
            node = self._node(call.func, call.args, call.kwargs)
            if call.func._schema.returns[0].type.isSubtypeOf(torch._C.ListType.ofTensors()):
                node.output().setType(torch._C.ListType.ofTensors())
                node = self._at.graph.create("prim::ListUnpack", [node.output()], len(outs))
                self._at.graph.insertNode(node)
            for k, slot in enumerate(outs):
                if slot is not None:
                    self._at.values[slot] = node.outputsAt(k)

    def _add_view(self, call: Call) -> None:
        """Make a view of memory that stays."""
        args, kwargs = (_real(given, self._memory) for given in (call.args, call.kwargs))
        result = call.func(*args, **kwargs)
        for slot, view in zip(call.outs, result if call.is_tuple else [result], strict=True):
            if slot is not None:
                if view.stride() != self._recording.tensors[slot].stride():
                    raise NotCompilableError(f"{call.name} gives another view")
                self._memory[slot] = view

    def _take(self, call: Call) -> list[Tensor]:
        """Return the memory of the results of a call."""
        slots = [slot for slot in call.outs if slot is not None]
        buffers = [self._plan.buffer(slot) for slot in slots]
        self._memory |= zip(slots, buffers, strict=True)
        return buffers

    def _add_in_place(self, call: Call) -> bool:
        """Let a call write its result into memory that stays, where that is the same call."""
        if not self._can_write(call):
            return False
        func, args = self._writing_call(call)
        outs = self._take(call)
        if func is aten.copy_.default:
            node = self._node(func, [*outs, *args], {})
        else:
            node = self._node(func, args, call.kwargs, outs)
        for k, slot in enumerate(call.outs):
            assert slot is not None
            self._at.values[slot] = node.outputsAt(k)
        return True

    def _can_write(self, call: Call) -> bool:
        """Return whether a call can write its results into memory that stays."""
        planned = [slot is not None and self._plan.is_planned(slot) for slot in call.outs]
        can = all(planned) and not self._recording.is_view(call)
        return can and (call.name == "empty" or self._writing_call(call)[0] is not None)

    def _writing_call(self, call: Call) -> tuple[Any, Sequence[Any]]:
        """Return the function that writes the result to where it is told, if any, and arguments."""
        func, args = call.func, call.args
        if func in _COPIES:
            return aten.copy_.default, args[:1]
        if func is aten.relu.default:
            func, args = aten.clamp_min.default, [args[0], 0]
        elif func is aten.rsub.Scalar and len(args) == 2 and self._is_float(args[0]):
            func, args = aten.sub.Tensor, [args[1], args[0]]
        elif func in _WITH_TENSOR and self._is_float(args[0]):
            func = _WITH_TENSOR[func]
        return _writing(func), args

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
        node = self._at.graph.create(func._schema.name, inputs, len(func._schema.returns))
        self._at.graph.insertNode(node)
        if is_exact and node.schema() != str(func._schema):
            raise NotCompilableError(f"no {func._schema}")
        self._at.nodes.append(node)
        return node

    def _scalar(self, value: Any) -> Any:
        """Return a number as a tensor: nothing has to be made of it each time."""
        if not isinstance(value, Number):
            return _Made(self._constant(("scalar", float(value)), torch.tensor(float(value))))
        if value not in self._at.number_tensors:
            inputs = [self._constant((), torch.zeros(())), self._number(value)]
            node = self._at.graph.create("aten::fill_", inputs, 1)
            self._at.graph.insertNode(node)
            self._at.nodes.append(node)
            self._at.number_tensors[value] = node.output()
        return _Made(self._at.number_tensors[value])

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
        at = self._at
        if slot not in at.values:
            if slot in self._memory:
                return self._constant(id(self._memory[slot]), self._memory[slot])
            tensor = torch._C.TensorType.get()
            at.values[slot] = self._input(tensor, int(slot), lambda: self._value(slot))
        return at.values[slot]

    def _number(self, name: str) -> Any:
        at = self._at
        if name not in at.numbers:
            kind, place = torch._C.FloatType.get(), self._places[name]
            at.numbers[name] = self._input(kind, place, lambda: self._number(name))
        return at.numbers[name]

    def _input(self, kind: Any, place: int, of_outer: Callable[[], Any]) -> Any:
        """Add what a graph reads: a register; a lane, a value of the graph that starts it."""
        at = self._at
        if at.outer is None:
            at.reads.append(place)
        else:
            self._at = at.outer
            at.reads.append(of_outer())
            self._at = at
        value = at.graph.addInput(f"input_{place}")
        value.setType(kind)
        return value

    def _constant(self, key: Any, value: Any) -> Any:
        if key == () or key not in self._at.constants:
            # The value is kept, so that no other takes its identity.
            self._at.constants[key] = self._at.graph.insertConstant(value), value
        return self._at.constants[key][0]

    def _plain_node(self, kind: str, inputs: Sequence[Any], output: Any) -> Any:
        node = self._at.graph.create(kind, list(inputs), 1)
        node.output().setType(output)
        self._at.graph.insertNode(node)
        return node.output()


class _Made:
    """A value of the graph, as an argument."""

    def __init__(self, value: Any) -> None:
        self.value = value


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

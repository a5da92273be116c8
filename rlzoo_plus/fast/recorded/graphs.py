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

from rlzoo_plus.artifacts.atomic import map_leaves
from rlzoo_plus.fast.recorded import onednn
from rlzoo_plus.fast.recorded.memory import MemoryPlan
from rlzoo_plus.fast.recorded.recording import Call, Number, Recording, Slot, leaves
from rlzoo_plus.fast.recorded.scope import NotCompilableError, Scope

aten = torch.ops.aten
_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_WITH_TENSOR = {
    aten.mul.Scalar: aten.mul.Tensor,
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.div.Scalar: aten.div.Tensor,
}
_below_autograd = getattr(torch._C, "_AutoDispatchBelowAutograd", nullcontext)
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_COPIES = (aten._to_copy.default, aten.clone.default)


def compiled(
    calls: Sequence[Call],
    recording: Recording,
    known: Mapping[Slot, Tensor],
    places: Mapping[str, int],
    *,
    by_onednn: bool = False,
) -> Graph:
    """Return what makes the calls.

    Args:
        calls: What is left of a recording.
        recording: The recording.
        known: Tensors whose memory is the same each time.
        places: In which registers variable numbers are.
        by_onednn: Whether large products are made by oneDNN.

    Raises:
        NotCompilableError: TorchScript has no such call.
    """
    return _Builder(calls, recording, known, places, by_onednn=by_onednn).build()


class Graph:
    """Makes the calls.

    Attributes:
        function: Of TorchScript; it returns what is wanted, and a number.
        n_by_onednn: Products that it makes by oneDNN.
    """

    def __init__(self, function: Any, reads: Sequence[int], n_by_onednn: int) -> None:
        self.function, self._read = function, _getter(reads)
        self.n_by_onednn = n_by_onednn

    def __call__(self, registers: list[Any]) -> Sequence[Tensor]:
        """Make the calls."""
        optimizes = torch._C._get_graph_executor_optimize()
        torch._C._set_graph_executor_optimize(False)  # of this thread
        try:
            with _below_autograd():
                results = self.function(*self._read(registers))
        finally:
            torch._C._set_graph_executor_optimize(optimizes)
        wanted: Sequence[Tensor] = results[:-1]
        return wanted


def _getter(places: Sequence[int]) -> Callable[[list[Any]], Any]:
    """Return what reads registers as a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda registers: [registers[place] for place in places]


class _Builder:
    """Builds the graph."""

    def __init__(
        self,
        calls: Sequence[Call],
        recording: Recording,
        known: Mapping[Slot, Tensor],
        places: Mapping[str, int],
        *,
        by_onednn: bool,
    ) -> None:
        self._by_onednn, self._n_by_onednn = by_onednn, 0
        self._calls, self._recording, self._places = calls, recording, places
        self._memory = dict(known)
        self._at = Scope()
        self._plan = MemoryPlan(calls, recording, known)

    def build(self) -> Graph:
        """Return what makes the calls."""
        for number, call in enumerate(self._calls):
            self._add(call)
            self._plan.free(number)
        results = [self._value(slot) for slot in self._recording.outputs]
        self._at.end([*results, self._at.count(results)])
        function = torch._C._create_function_from_graph("recorded", self._at.graph)
        return Graph(function, self._at.reads, self._n_by_onednn)

    def _add(self, call: Call) -> None:
        outs = call.outs
        if self._recording.is_view(call) and self._memory.keys() >= set(call.inputs):
            self._add_view(call)
        elif call.changed or (call.name == "empty" and self._can_write(call)):
            if call.changed:
                node = self._node(call.func, call.args, call.kwargs)
                self._at.values |= {slot: node.output() for slot in outs if slot is not None}
            else:
                self._take(call)
        elif not self._add_by_onednn(call) and not self._add_in_place(call):
            node = self._node(call.func, call.args, call.kwargs)
            if call.func._schema.returns[0].type.isSubtypeOf(torch._C.ListType.ofTensors()):
                node.output().setType(torch._C.ListType.ofTensors())
                node = self._at.graph.create("prim::ListUnpack", [node.output()], len(outs))
                self._at.graph.insertNode(node)
            for k, slot in enumerate(outs):
                if slot is not None:
                    self._at.values[slot] = node.outputsAt(k)

    def _add_by_onednn(self, call: Call) -> bool:
        """Add a product of two matrices, and a row, by oneDNN if it is wanted and large."""
        if not self._by_onednn or call.func not in _PRODUCTS or call.kwargs:
            return False
        *bias, x, weight = call.args
        tensors = self._recording.tensors
        slots = [leaf for leaf in call.args if isinstance(leaf, Slot)]
        if len(slots) != len(call.args) or not onednn.pays(tensors[x], tensors[weight].t()):
            return False
        if not onednn.is_dense(tensors[weight]):  # see `onednn.linear`
            return False
        if bias and tensors[bias[0]].dim() != 1:
            return False
        if (known := self._memory.get(weight)) is not None:
            view = known.t()
            transposed = self._at.constant(id(view), view)
        else:
            transposed = self._node(aten.t.default, [weight], {}).output()
        args = [x, _Made(transposed), bias[0] if bias else None, "none", [], ""]
        node = self._node(torch.ops.mkldnn._linear_pointwise.default, args, {})
        (out,) = call.outs
        assert out is not None
        self._at.values[out] = node.output()
        self._n_by_onednn += 1
        return True

    def _add_view(self, call: Call) -> None:
        """Make a view of memory that stays."""
        args, kwargs = map_leaves(
            (call.args, call.kwargs),
            lambda leaf: self._memory[leaf] if isinstance(leaf, Slot) else leaf,
        )
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
            inputs.append(self._argument(value, argument.type))
        node = self._at.add(func._schema.name, inputs, len(func._schema.returns))
        if is_exact and node.schema() != str(func._schema):
            raise NotCompilableError(f"no {func._schema}")
        return node

    def _scalar(self, value: Any) -> Any:
        """Return a number as a tensor: nothing has to be made of it each time."""
        if not isinstance(value, Number):
            return _Made(self._at.constant(("scalar", float(value)), torch.tensor(float(value))))
        if value not in self._at.number_tensors:
            inputs = [self._at.constant((), torch.zeros(())), self._number(value)]
            self._at.number_tensors[value] = self._at.add("aten::fill_", inputs).output()
        return _Made(self._at.number_tensors[value])

    def _argument(self, value: Any, kind: Any) -> Any:
        """Return the value in the graph of an argument; `kind` is torch's type of it."""
        if isinstance(value, _Made):
            return value.value
        if isinstance(value, Slot):
            return self._value(value)
        if isinstance(value, Number):
            return self._number(value)
        if isinstance(value, Tensor):
            return self._at.constant(id(value), value)
        if isinstance(value, (list, tuple)) and any(isinstance(x, Slot) for x in value):
            items = [self._argument(item, torch._C.TensorType.get()) for item in value]
            return self._at.plain("prim::ListConstruct", items, torch._C.ListType.ofTensors())
        if any(isinstance(leaf, (Slot, Number)) for leaf in leaves(value)):
            raise NotCompilableError("a list of numbers that vary")
        if isinstance(value, (list, tuple)):
            if not value:
                is_list = isinstance(kind, torch._C.ListType)
                of = kind if is_list else torch._C.ListType.ofInts()
                return self._at.plain("prim::ListConstruct", [], of)
            value = list(value)
        value = _FORMATS.get(value, value) if isinstance(value, torch.memory_format) else value
        if str(kind) == "float" and type(value) is int:
            value = float(value)
        return self._at.constant((type(value), repr(value)), value)

    def _value(self, slot: Slot) -> Any:
        values = self._at.values
        if slot not in values:
            known = self._memory.get(slot)
            if known is not None:
                return self._at.constant(id(known), known)
            values[slot] = self._at.input(torch._C.TensorType.get(), int(slot))
        return values[slot]

    def _number(self, name: str) -> Any:
        numbers = self._at.numbers
        if name not in numbers:
            numbers[name] = self._at.input(torch._C.FloatType.get(), self._places[name])
        return numbers[name]


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

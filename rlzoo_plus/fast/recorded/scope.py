"""`Scope`: a graph of TorchScript that is being built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded.recording import Slot


class NotCompilableError(Exception):
    """TorchScript has no such call."""


class Scope:
    """A graph that is being built, with the values in it.

    Attributes:
        outer: For a lane, the graph that starts it.
        graph: The graph.
        values: Those of slots.
        shared: Where the other lane puts what this one reads, if it is not in planned memory.
        numbers: Values of numbers that vary.
        number_tensors: The same as tensors.
        reads: The registers it reads; for a lane, values of the graph that starts it.
        counts: Numbers that it has to return, so that none of its calls is left out as unused.
    """

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.graph: Any = torch._C.Graph()
        self.values: dict[Slot, Any] = {}
        self.shared: dict[Slot, Tensor] = {}
        self.numbers: dict[str, Any] = {}
        self.number_tensors: dict[Any, Any] = {}
        self.reads: list[Any] = []
        self.counts: list[Any] = []
        self._constants: dict[Any, Any] = {}
        self._nodes: list[Any] = []

    def add(self, kind: str, inputs: Sequence[Any], n_outputs: int = 1) -> Any:
        """Add a call of torch."""
        node = self.graph.create(kind, inputs, n_outputs)
        self.graph.insertNode(node)
        self._nodes.append(node)
        return node

    def plain(self, kind: str, inputs: Sequence[Any], output: Any) -> Any:
        """Add what gives a value of this type; return the value."""
        node = self.graph.create(kind, list(inputs), 1)
        node.output().setType(output)
        self.graph.insertNode(node)
        return node.output()

    def constant(self, key: Any, value: Any) -> Any:
        """Return a constant; those with the same key are one, without a key each is its own."""
        if key == () or key not in self._constants:
            # The value is kept, so that no other takes its identity.
            self._constants[key] = self.graph.insertConstant(value), value
        return self._constants[key][0]

    def set_turn(self, turn: Tensor, number: int) -> None:
        """Tell the other lane that it may go on."""
        self.add("aten::fill_", self._turn(turn, number))

    def wait_for(self, turn: Tensor, number: int) -> None:
        """Wait until the other lane says so."""
        self.counts += self.graph.insertGraph(_waiting(), self._turn(turn, number))

    def _turn(self, turn: Tensor, number: int) -> list[Any]:
        return [self.constant(id(turn), turn), self.constant((int, str(number)), number)]

    def count(self, results: Sequence[Any]) -> Any:
        """Add a number that depends on all calls whose results are read in memory only.

        Without it, they would be left out as unused.
        """
        returned = {value.debugName() for value in results}
        # A call without results changes the tensors of its first list.
        made = [
            next(node.outputs(), None) or next(next(node.inputs()).node().inputs())
            for node in self._nodes
            if not node.hasUses()
        ]
        unused = [value for value in made if value.debugName() not in returned]
        tensors = self.plain("prim::ListConstruct", unused, torch._C.ListType.ofTensors())
        return self.plain("aten::len", [tensors], torch._C.IntType.get())

    def end(self, results: Sequence[Any]) -> Any:
        """Let the graph return a tuple and check it; return the type of the tuple.

        Raises:
            NotCompilableError: TorchScript would leave out a call.
        """
        kind = torch._C.TupleType([value.type() for value in results])
        self.graph.registerOutput(self.plain("prim::TupleConstruct", results, kind))
        self.graph.lint()
        checked = self.graph.copy()
        torch._C._jit_pass_dce(checked)
        if len(list(checked.nodes())) != len(list(self.graph.nodes())):
            raise NotCompilableError("TorchScript would leave out a call")
        return kind


@cache
def _waiting() -> Any:
    """Return the graph that looks at a number until it is large enough.

    A lane that sleeps takes some 50 microseconds to wake; one that looks is there at once. It gives
    up after minutes: then the other lane has failed. On x86, stores are seen in their order;
    streamed ones too, since the interpreter counts references between calls, which waits for them.
    """
    return torch._C.parse_ir(
        """graph(%turn : Tensor, %number : int):
          %most : int = prim::Constant[value=1000000000]()
          %goes_on : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %looks : int = prim::Loop(%most, %goes_on, %zero)
            block0(%look : int, %before : int):
              %seen : int = aten::Int(%turn)
              %waits : bool = aten::lt(%seen, %number)
              -> (%waits, %look)
          %last : int = aten::Int(%turn)
          %has_failed : bool = aten::lt(%last, %number)
          prim::If(%has_failed)
            block0():
              %error : str = prim::Constant[value="the other lane has failed"]()
              prim::RaiseException(%error, %none)
              -> ()
            block1():
              -> ()
          return (%looks)"""
    )

"""`Scope`: a graph of TorchScript that is being built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlzoo_plus.fast.recorded.recording import Slot


class NotCompilableError(Exception):
    """TorchScript has no such call."""


class Scope:
    """A graph that is being built, with the values in it.

    Attributes:
        graph: The graph.
        values: Those of slots.
        numbers: Values of numbers that vary.
        number_tensors: The same as tensors.
        reads: The registers that it reads.
    """

    def __init__(self) -> None:
        self.graph: Any = torch._C.Graph()
        self.values: dict[Slot, Any] = {}
        self.numbers: dict[str, Any] = {}
        self.number_tensors: dict[Any, Any] = {}
        self.reads: list[int] = []
        self._constants: dict[Any, Any] = {}
        self._nodes: list[Any] = []

    def input(self, kind: Any, place: int) -> Any:
        """Add a register that the graph reads; return its value."""
        self.reads.append(place)
        value = self.graph.addInput(f"input_{place}")
        value.setType(kind)
        return value

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

    def end(self, results: Sequence[Any]) -> None:
        """Let the graph return a tuple, and check it.

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

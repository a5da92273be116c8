"""Leaves out calls of a recording that compute again what another has computed.

Autograd's formulas repeat work of the forward pass: the one of a quotient divides again, the one of
a variance takes the mean again. A call of the same function with the same arguments, whose memory
nobody has changed in between, gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from rlzoo_plus.artifacts.atomic import map_leaves
from rlzoo_plus.fast.recorded.recording import Call, Recording, Slot

aten = torch.ops.aten
_REDUCTIONS = (aten.mean.dim, aten.sum.dim_IntList)


def without_repeats(calls: Sequence[Call], recording: Recording) -> list[Call]:
    """Return the calls less those that repeat another one; the recording is told of new views.

    Random numbers are drawn as often as before, and what is changed in place or wanted as an
    output keeps a call and memory of its own.
    """
    return _Merger(calls, recording).kept


class _Merger:
    """Goes through the calls.

    Attributes:
        kept: Calls that are made.
    """

    def __init__(self, calls: Sequence[Call], recording: Recording) -> None:
        self._recording = recording
        written = {recording.storage(slot) for call in calls for slot in call.changed}
        self._own = written | {recording.storage(slot) for slot in recording.outputs}
        self._same: dict[Slot, Slot] = {}
        self._made: dict[Any, list[Slot | None]] = {}
        # How often the memory of each number has been changed.
        self._changes: Counter[int] = Counter()
        self.kept: list[Call] = []
        for call in calls:
            self._add(call)

    def _add(self, call: Call) -> None:
        """Keep a call, or take the results of another one for its own."""
        args, kwargs = map_leaves((call.args, call.kwargs), self._renamed)
        outs = [None if slot is None else self._renamed(slot) for slot in call.outs]
        call = Call(call.func, args, kwargs, outs, call.is_tuple)
        if not call.changed and not call.is_random and self._is_free(call):
            call = self._as_view(call)
            known = self._made.setdefault(self._key(call), call.outs)
            if known is not call.outs:
                self._same |= {
                    slot: other
                    for slot, other in zip(call.outs, known, strict=True)
                    if slot is not None and other is not None
                }
                return
        self._changes.update({self._recording.storage(slot) for slot in call.changed})
        self.kept.append(call)

    def _renamed(self, leaf: Any) -> Any:
        return self._same.get(leaf, leaf) if isinstance(leaf, Slot) else leaf

    def _is_free(self, call: Call) -> bool:
        """Return whether nobody changes the results, and they may be those of another call."""
        outs = [slot for slot in call.outs if slot is not None]
        if self._recording.is_view(call):
            return not set(outs).intersection(self._recording.outputs)
        return self._own.isdisjoint(map(self._recording.storage, outs))

    def _key(self, call: Call) -> Any:
        """Return what two calls have in common that give the same."""
        plain = map_leaves((call.args, call.kwargs), lambda leaf: (type(leaf).__name__, leaf))
        # A view is the same whatever is in the memory.
        of = [] if self._recording.is_view(call) else call.inputs
        return call.func, repr(plain), *(self._changes[self._recording.storage(s)] for s in of)

    def _as_view(self, call: Call) -> Call:
        """Return a reduction that keeps its dimension as a view of the one that does not."""
        if call.func not in _REDUCTIONS or len(call.args) != 3 or call.kwargs:
            return call
        source, dims, keeps = call.args
        if keeps is not True or len(dims) != 1:
            return call
        other = Call(call.func, (source, dims, False), {}, [], is_tuple=False)
        # As autograd and modules write it: without what is the default.
        shorter = Call(call.func, (source, dims), {}, [], is_tuple=False)
        found = self._made.get(self._key(other)) or self._made.get(self._key(shorter))
        if not found or found[0] is None:
            return call
        (out,) = call.outs
        assert out is not None
        self._recording.spans[out] = self._recording.spans[found[0]]
        return Call(aten.unsqueeze.default, (found[0], dims[0]), {}, [out], is_tuple=False)

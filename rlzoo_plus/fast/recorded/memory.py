"""`MemoryPlan`: plans where the results of a recording go, so that nothing has to be allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded.lanes import Segment
from rlzoo_plus.fast.recorded.recording import Call, Recording, Slot

aten = torch.ops.aten
# Larger results are allocated each time, and given back.
_LARGEST = 2**24


class MemoryPlan:
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
        segments: Sequence[Segment],
    ) -> None:
        self._recording, self._calls, self._known = recording, own, known
        self._lane: int | None = None
        self._free_in: list[dict[Any, list[Tensor]]] = [{}, {}]
        self._born: dict[int, int | None] = {}
        self._beside = _beside(segments)
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
        self._held: dict[Any, list[Tensor]] = {}
        # Places whose memory is another's: of a known tensor, or of what was written over it.
        self._given: set[int] = set()
        self.left_out: set[int] = set()
        self._slots = slots

    def write_straight(self, can_write: Callable[[Call], bool]) -> None:
        """Let what is copied be written to its place at once, if the call can that makes it."""
        for number, call in enumerate(self._calls):
            if call.func is aten.copy_.default and self._goes_straight(number, call, can_write):
                self.left_out.add(number)

    def is_planned(self, slot: Slot) -> bool:
        """Whether memory can be planned for a result."""
        place, start, _ = self._recording.span(slot)
        return (
            place not in self._leaving
            and place != 0
            and start == 0
            and self._recording.n_bytes[slot] <= _LARGEST
            and type(self._recording.tensors[slot]) is Tensor
        )

    def buffer(self, slot: Slot) -> Tensor:
        """Return the memory of a result; that of others which nobody reads any more is used."""
        tensor, place = self._recording.tensors[slot], self._recording.storage(slot)
        if place not in self._made:
            base = self._taken_over(slot)
            self._made[place] = self._unused(slot) if base is None else base
            self._born[place] = self._lane
        base = self._made[place]
        return base.as_strided(tensor.size(), tensor.stride(), base.storage_offset())

    def _unused(self, slot: Slot) -> Tensor:
        """Return memory that nobody reads any more, or new one."""
        tensor = self._recording.tensors[slot]
        n_items = self._recording.n_bytes[slot] // tensor.element_size()
        key = tensor.dtype, n_items
        free = self._free_in[self._lane].get(key) if self._lane is not None else None
        free = free or self._free.get(key)
        return free.pop() if free else torch.zeros(n_items, dtype=tensor.dtype)

    def _taken_over(self, slot: Slot) -> Tensor | None:
        """Return the memory of what a call is the last to read, if it reads and writes in step.

        That is still in the processor's caches, where other memory is not.
        """
        recording = self._recording
        number, result = self._first[recording.storage(slot)], recording.tensors[slot]
        call = self._calls[number]
        if torch.Tag.pointwise not in call.func.tags or len(call.outs) != 1:
            return None
        read = call.inputs
        for given in read:
            place, tensor = recording.storage(given), recording.tensors[given]
            others = [other for other in read if recording.storage(other) == place]
            fits = tensor.dtype == result.dtype and tensor.shape == result.shape
            fits = fits and tensor.stride() == result.stride()
            fits = fits and recording.n_bytes[given] == recording.n_bytes[slot]
            if fits and place in self._ends.get(number, ()) and set(others) == {given}:
                base = self._made.get(place)
                own = self._lane is None or self._born.get(place) == self._lane
                if base is not None and own and place not in self._given:
                    self._given.add(place)
                    return base
        return None

    def free(self, number: int) -> None:
        """Note that a call has been added: what it was the last to read is free."""
        for place in self._ends.get(number, ()):
            base = self._made.get(place)
            if base is None or place in self._given:
                continue
            if self._lane is None:
                free = self._free
            elif self._born[place] == self._lane:
                free = self._free_in[self._lane]
            else:  # the other lane may still read it
                free = self._held
            free.setdefault((base.dtype, base.numel()), []).append(base)

    def enter(self, lane: int) -> None:
        """Note that what follows is on a lane, until `leave`."""
        self._lane = lane

    def leave(self) -> None:
        """Note that both lanes have ended; what they made, the next ones may both read."""
        self._lane, self._born = None, dict.fromkeys(self._born)
        for free in (*self._free_in, self._held):
            for key, bases in free.items():
                self._free.setdefault(key, []).extend(bases)
            free.clear()

    def _goes_straight(self, number: int, call: Call, can_write: Callable[[Call], bool]) -> bool:
        """Whether what a call copies can be written to its place at once; note where."""
        target, source = call.args[0], call.args[1]
        recording = self._recording
        if len(call.args) > 2 or target not in self._known or not self.is_planned(source):
            return False
        to, what = recording.tensors[target], recording.tensors[source]
        place = recording.storage(source)
        whole = recording.n_bytes[source] == what.numel() * what.element_size()
        fits = to.shape == what.shape and to.dtype == what.dtype and whole
        fits = fits and to.is_contiguous() and what.is_contiguous() and place not in self._made
        first = self._first[place]
        maker = self._calls[first]
        if not fits or self._last[place] != number or maker.changed or not can_write(maker):
            return False
        numbers = {*range(first, number), *self._beside.get(first, ())}
        numbers |= set(self._beside.get(number, ()))
        spans = {recording.span(slot) for k in numbers for slot in self._slots[k]}
        there, start, end = recording.span(target)
        if any(at == there and low < end and start < high for at, low, high in spans):
            return False
        known = self._known[target]
        self._made[place] = known.as_strided((known.numel(),), (1,), known.storage_offset())
        self._given.add(place)
        return True


def _beside(segments: Sequence[Segment]) -> dict[int, range]:
    """Return, for each call on a lane, those on the other one."""
    found: dict[int, range] = {}
    place = 0
    for segment in segments:
        place += len(segment.first)
        if segment.lanes is not None:
            middle = place + len(segment.lanes[0])
            end = middle + len(segment.lanes[1])
            found |= dict.fromkeys(range(place, middle), range(middle, end))
            found |= dict.fromkeys(range(middle, end), range(place, middle))
            place = end
    return found

"""`MemoryPlan`: plans where the results of a recording go, so that nothing has to be allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded.recording import Call, Recording, Slot

# Larger results are allocated each time, and given back.
_LARGEST = 2**24


class MemoryPlan:
    """Plans where the results of calls go."""

    def __init__(
        self, calls: Sequence[Call], recording: Recording, known: Mapping[Slot, Tensor]
    ) -> None:
        self._recording = recording
        storage = recording.storage
        slots = [[*c.inputs, *(slot for slot in c.outs if slot is not None)] for c in calls]
        self._last: dict[int, int] = {}
        for number, touched in enumerate(slots):
            for slot in touched:
                self._last[storage(slot)] = number
        self._leaving = {storage(slot) for slot in (*recording.inputs, *known, *recording.outputs)}
        self._made: dict[int, Tensor] = {}
        self._ends: dict[int, list[int]] = {}
        for place, number in self._last.items():
            self._ends.setdefault(number, []).append(place)
        self._free: dict[Any, list[Tensor]] = {}

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
            self._made[place] = self._unused(slot)
        base = self._made[place]
        return base.as_strided(tensor.size(), tensor.stride())

    def _unused(self, slot: Slot) -> Tensor:
        """Return memory that nobody reads any more, or new one."""
        tensor = self._recording.tensors[slot]
        n_items = self._recording.n_bytes[slot] // tensor.element_size()
        key = tensor.dtype, n_items
        free = self._free.get(key)
        return free.pop() if free else torch.zeros(n_items, dtype=tensor.dtype)

    def free(self, number: int) -> None:
        """Note that a call has been added: what it was the last to read is free."""
        for place in self._ends.get(number, ()):
            base = self._made.get(place)
            if base is not None:
                self._free.setdefault((base.dtype, base.numel()), []).append(base)

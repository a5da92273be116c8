"""Which calls of a recording can be made at the same time, on two lanes.

A recording becomes segments, one after the other. In each, some calls are made in their order, then
two groups that do not depend on each other side by side. The other lane is started once, and looks
for its turn at each segment: what one has written, the other one sees in the same order on x86, but
not on every processor. Random numbers are drawn in one order
always, and what is changed in place is read before or after as recorded: the numbers do not depend
on lanes.
"""

from __future__ import annotations

import logging
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlzoo_plus.fast.recorded.recording import Call, Recording, Slot
from robots.cores import usable_cores

log = logging.getLogger(__name__)
Way = Callable[[list[Any]], Sequence[Tensor]]
# What starting the other lane takes, and what it takes that both wait for each other [s].
_BEGIN, _START = 60e-6, 15e-6
# Lanes are for recordings that take at least this long, and gain at least this share of it.
_LEAST, _GAIN = 200e-6, 0.12
_MOST_CUTS = 60
# Both ways are tried in turn after some runs, and again after a pause: a short one when lanes lost.
_WARM, _FEW, _TRIALS, _PAUSE, _SHORT = 4, 3, 12, 2000, 100
_FASTER, _HOPELESS = 0.93, 1.3


@dataclass
class Segment:
    """Calls by their numbers: `first` in order, then both lanes side by side."""

    first: list[int] = field(default_factory=list)
    lanes: tuple[list[int], list[int]] | None = None

    @property
    def calls(self) -> list[int]:
        """All calls of the segment."""
        return [*self.first, *(number for lane in self.lanes or () for number in lane)]


def segments_of(calls: Sequence[Call], recording: Recording) -> list[Segment] | None:
    """Return segments that take less time than the calls in their order; None if none do."""
    costs = [call.cost for call in calls]
    total = sum(costs)
    if total < _LEAST:
        return None
    before = _dependencies(calls, recording)
    found = [_cut(_times(costs, before, late), costs, before) for late in (0.0, 60e-6, total)]
    left, segments = min(found, key=lambda one: one[0])
    if left + _BEGIN >= (1 - _GAIN) * total:
        return None
    _stay(segments, costs, before)
    return segments


def _stay(segments: Sequence[Segment], costs: Sequence[float], before: Sequence[set[int]]) -> None:
    """Swap lanes where one reads more of what the other one made: that is in its core's caches."""
    made_on: dict[int, int] = {}
    for segment in segments:
        made_on |= dict.fromkeys(segment.first, 0)
        if segment.lanes is not None:
            read = [(lane, k) for lane in (0, 1) for n in segment.lanes[lane] for k in before[n]]
            stays = sum(
                costs[k] if made_on[k] == lane else -costs[k] for lane, k in read if k in made_on
            )
            if stays < 0:
                segment.lanes = segment.lanes[::-1]
            for lane in (0, 1):
                made_on |= dict.fromkeys(segment.lanes[lane], lane)


def _dependencies(calls: Sequence[Call], recording: Recording) -> list[set[int]]:
    """Return, for each call, which earlier ones it must come after."""
    makers: dict[Slot, int] = {}
    touched: dict[int, list[tuple[int, int, int, bool]]] = {}
    before: list[set[int]] = []
    last_random = None
    for number, call in enumerate(calls):
        mine = {makers[slot] for slot in call.inputs if slot in makers}
        if call.is_random:
            mine |= set() if last_random is None else {last_random}
            last_random = number
        made = [slot for slot in call.outs if slot is not None]
        changed = [*call.changed, *([] if recording.is_view(call) else made)]
        spans = [(slot, False) for slot in call.inputs] + [(slot, True) for slot in changed]
        for slot, writes in spans:
            place, start, end = recording.span(slot)
            others = touched.setdefault(place, [])
            mine |= {
                other
                for low, high, other, wrote in others
                if (writes or wrote) and low < end and start < high
            }
        for slot, writes in spans:
            place, start, end = recording.span(slot)
            touched[place].append((start, end, number, writes))
        makers |= dict.fromkeys(made, number)
        before.append(mine - {number})
    return before


def _times(costs: Sequence[float], before: Sequence[set[int]], late: float) -> list[float]:
    """Return when each call is due: as soon as it can be, at the end if little comes after it."""
    starts = [0.0] * len(costs)
    for number, others in enumerate(before):
        starts[number] = max((starts[k] + costs[k] for k in others), default=0.0)
    rest = list(costs)
    for number in reversed(range(len(costs))):
        for other in before[number]:
            rest[other] = max(rest[other], costs[other] + rest[number])
    end = max(start + left for start, left in zip(starts, rest, strict=True))
    return [end - left if left <= late else s for s, left in zip(starts, rest, strict=True)]


def _cut(
    times: Sequence[float], costs: Sequence[float], before: Sequence[set[int]]
) -> tuple[float, list[Segment]]:
    """Cut the calls where that saves most time; return the time that is left, and the segments."""
    order = sorted(range(len(costs)), key=lambda k: (times[k], k))
    heavy = sorted(order, key=lambda k: -costs[k])[: _MOST_CUTS // 2]
    moments = {times[k] for k in heavy} | {times[k] + costs[k] for k in heavy}
    cuts = [0]
    for place in range(1, len(order)):
        low, high = times[order[place - 1]], times[order[place]]
        if low < high and any(low < moment <= high for moment in moments):
            cuts.append(place)
    cuts.append(len(order))
    best: list[tuple[float, int, tuple[list[int], list[int]] | None]] = [(0.0, 0, None)] * len(cuts)
    for i in reversed(range(len(cuts) - 1)):
        groups = _Groups(before)
        found = []
        serial = 0.0
        for j in range(i + 1, len(cuts)):
            for number in order[cuts[j - 1] : cuts[j]]:
                groups.add(number, costs[number])
                serial += costs[number]
            found.append((serial + best[j][0], j, None))
            longest, lanes = groups.packed()
            found.append((longest + _START + best[j][0], j, lanes))
        best[i] = min(found, key=lambda one: one[0])
    segments, i, current = [], 0, Segment()
    while i < len(cuts) - 1:
        _, j, lanes = best[i]
        if lanes is None:
            if current.lanes is not None:
                segments.append(current)
                current = Segment()
            current.first += sorted(order[cuts[i] : cuts[j]])
        else:
            if current.lanes is not None:
                segments.append(current)
                current = Segment()
            current.lanes = sorted(lanes[0]), sorted(lanes[1])
        i = j
    return best[0][0], [*segments, current]


class _Groups:
    """Groups of calls that depend on each other."""

    def __init__(self, before: Sequence[set[int]]) -> None:
        self._before = before
        self._of: dict[int, int] = {}
        self._members: dict[int, list[int]] = {}
        self._cost: dict[int, float] = {}

    def add(self, number: int, cost: float) -> None:
        """Add a call to the group of those that it must come after."""
        joined = {self._of[k] for k in self._before[number] if k in self._of}
        members, total = [number], cost
        for group in joined:
            members += self._members.pop(group)
            total += self._cost.pop(group)
        for member in members:
            self._of[member] = number
        self._members[number], self._cost[number] = members, total

    def packed(self) -> tuple[float, tuple[list[int], list[int]]]:
        """Return the groups on two lanes, and the time of the longer one, which is the first."""
        lanes: tuple[list[int], list[int]] = [], []
        loads = [0.0, 0.0]
        for group in sorted(self._cost, key=lambda k: -self._cost[k]):
            lane = 0 if loads[0] <= loads[1] else 1
            lanes[lane].extend(self._members[group])
            loads[lane] += self._cost[group]
        if loads[1] > loads[0]:
            return loads[1], (lanes[1], lanes[0])
        return loads[0], lanes


def may_use_lanes() -> bool:
    """Return whether there is a core for a second lane, and torch leaves it alone."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_x86 and torch.get_num_threads() == 1 and usable_cores() > 1


class FasterOf:
    """Makes calls in one of two ways, whichever was faster when they were tried in turn.

    Both give the same numbers. They are tried again later, as other processes come and go. Lanes
    that lost are tried soon, then less and less often: both may have begun on one core by chance.
    """

    def __init__(self, plain: Way, other: Way) -> None:
        self._ways = plain, other
        self._chosen, self._runs = plain, 0
        self._first, self._n_lost = _WARM, 0
        self._times: tuple[list[float], list[float]] = [], []

    @property
    def uses_lanes(self) -> bool:
        """Whether the other way was faster when they were tried last."""
        return self._chosen is self._ways[1]

    def __call__(self, registers: list[Any]) -> Sequence[Tensor]:
        """Make the calls."""
        self._runs += 1
        if self._runs <= self._first:
            return self._chosen(registers)
        which = self._runs % 2
        started = time.perf_counter()
        results = self._ways[which](registers)
        self._times[which].append(time.perf_counter() - started)
        self._judge()
        return results

    def _judge(self) -> None:
        """Choose a way once that is clear."""
        count = min(map(len, self._times))
        if count < _FEW:
            return
        plain, other = (statistics.median(times[1:]) for times in self._times)
        if count < _TRIALS and other < _HOPELESS * plain:
            return
        is_faster = other < _FASTER * plain
        pause = _PAUSE if is_faster else _SHORT * 2**self._n_lost
        self._n_lost = 0 if is_faster else self._n_lost + 1
        self._chosen = self._ways[is_faster]
        log.debug("two lanes take %.2f of the time of one", other / plain)
        self._first, self._times = self._runs + pause, ([], [])

"""`Tape`: records the calls of a loss and its backward pass once, and makes them again.

Recorded are the calls below autograd, with their arguments. Made again in the same order, they
give the same bits, without distributions, modules, a graph and the engine that walks through it.
What nobody uses is left out; random numbers are drawn as before. TorchScript's interpreter makes
the calls (`graphs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlzoo_plus.fast.recorded import recording as recordings
from rlzoo_plus.fast.recorded.graphs import compiled
from rlzoo_plus.fast.recorded.recording import Function, NotRecordableError, Recording, record
from rlzoo_plus.fast.recorded.repeats import without_repeats

__all__ = ["NotRecordableError", "Tape"]


class Tape:
    """A recorded function.

    It is recorded twice with different numbers: calls that differ in anything else would hold
    a number that is meant to vary. Only one thread at a time may run a tape.

    Attributes:
        n_calls: Calls of torch that are made each time.
        n_by_onednn: Products that are made by oneDNN.

    Raises:
        NotRecordableError: The function cannot be recorded.
    """

    def __init__(
        self,
        function: Function,
        inputs: Sequence[Tensor],
        numbers: Sequence[str],
        readable: Iterable[Tensor],
        changed: Sequence[Tensor] = (),
        *,
        by_onednn: bool = False,
    ) -> None:
        """Record a function.

        Args:
            function: Returns the tensors that are wanted.
            inputs: An example; later ones have the same shapes and types.
            numbers: Names of the numbers that it uses.
            readable: What else it reads: parameters and buffers, changed in place only.
            changed: Which of these it changes in place itself; recording leaves them as they are.
            by_onednn: Whether large products are made by oneDNN, which rounds in another way.
        """
        readable = [*readable, *changed]
        made: list[Recording] = []
        for which in (0, 1):
            given = function, inputs, _sentinels(numbers, which), readable, changed
            made.append(record(*given))
            if not which:
                made[0].let_go()  # before the memory of the other one is needed
        recordings.require_same(made[1], made[0])
        self._numbers = tuple(numbers)
        self._build(made[1], by_onednn=by_onednn)

    def run(self, inputs: Sequence[Tensor], numbers: Mapping[str, float]) -> Sequence[Tensor]:
        """Make the calls with these inputs and numbers, in order; gradients must be disabled."""
        registers = self._registers.copy()
        registers[: len(inputs)] = inputs
        for slot, name in zip(self._number_slots, self._numbers, strict=True):
            number = numbers[name]
            registers[slot] = None if number is None else float(number)
        return self._calls(registers)

    def _build(self, recording: Recording, *, by_onednn: bool) -> None:
        calls = without_repeats(recordings.needed(recording.calls, recording), recording)
        known = {slot: recording.tensors[slot].detach() for slot in recording.constants}
        recording.let_go()
        n_slots = len(recording.tensors)
        self._number_slots = [n_slots + k for k in range(len(self._numbers))]
        self._registers: list[Any] = [None] * (n_slots + len(self._numbers))
        places = dict(zip(self._numbers, self._number_slots, strict=True))
        self.n_calls = len(calls)
        try:
            self._calls = compiled(calls, recording, known, places, by_onednn=by_onednn)
            self.n_by_onednn = self._calls.n_by_onednn
        # Whatever torch raises for a call that TorchScript does not have.
        except Exception as error:
            raise NotRecordableError(f"TorchScript cannot make its calls: {error}") from error


def _sentinels(names: Sequence[str], which: int) -> dict[str, float]:
    """Return numbers that stand for the real ones while recording, none like another."""
    return {name: 0.2137 + 0.0131 * k + 0.00317 * which for k, name in enumerate(names)}

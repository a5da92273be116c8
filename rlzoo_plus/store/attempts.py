"""What the attempts at a run took and cost, as the record of its lease carries it on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable

# The newest attempts that a record keeps; its sums are over all of them.
MOST_ATTEMPTS = 16
# The end of an attempt whose worker was gone.
LOST = "lost"
# Before a share is spent, a run is stopped; one that does not stop is killed; what is left is for
# its last push. All three at once are a quarter of a small share.
STOP_S, KILL_S = 120.0, 45.0
_LARGEST_PART = 0.25
_MOST_SECONDS, _MOST_USD, _MOST_COUNT = 1e10, 1e7, 10**15
_LONGEST_WORKER, _LONGEST_WORD = 100, 80


@dataclass(frozen=True)
class Machine:
    """The machine of a worker."""

    kind: str | None = None  # its instance type, None if it is not known
    processor: str = "unknown"  # model of its processor
    # The most that one slot of it can cost [$ per hour], None if it is not known.
    usd_per_hour: float | None = None


@dataclass(frozen=True)
class Attempt:
    """What one worker did for a run."""

    worker: str
    machine: str | None  # instance type of its machine, None if it is not known
    processor: str  # model of the processor
    step: int | None  # the step that training began at, None if it did not begin
    seconds: float  # how long the worker had the run, up to its last sign of life [s]
    usd: float | None  # what that cost at most [$], None if no price is known
    end: str | None  # state of the lease that it ended with, or `LOST`; None if it has not ended


@dataclass(frozen=True)
class Spent:
    """Sums over all attempts at a run."""

    attempts: int = 0  # number of attempts that trained, or still may
    seconds: float = 0.0  # how long workers had the run [s]
    usd: float | None = None  # what that cost at most [$], None if no price is known of any attempt
    processors: tuple[str, ...] = ()  # models of the processors that it was trained on


def read_attempts(record: Mapping[str, Any]) -> tuple[list[Attempt], Spent]:
    """Return the attempts in the untrusted record of a lease, the newest last, and their sums."""
    listed = record.get("attempts")
    rows = listed[-MOST_ATTEMPTS:] if isinstance(listed, list) else []
    attempts = [_attempt(row) for row in rows if isinstance(row, Mapping)]
    said = record.get("spent")
    said = said if isinstance(said, Mapping) else {}
    names = said.get("processors")
    names = [_word(name) for name in names[:MOST_ATTEMPTS]] if isinstance(names, list) else []
    # Sums are never less than their newest parts.
    known_usd = (_number(said.get("usd"), _MOST_USD), sum_known(a.usd for a in attempts))
    spent = Spent(
        max(int(_number(said.get("attempts"), _MOST_COUNT) or 0), len(attempts)),
        max(
            _number(said.get("seconds"), _MOST_SECONDS) or 0.0,
            math.fsum(attempt.seconds for attempt in attempts),
        ),
        max((usd for usd in known_usd if usd is not None), default=None),
        _processors(names, attempts),
    )
    return attempts, spent


class Account:
    """What a run has cost, from the attempts before this one on; part of each beat of its lease."""

    def __init__(
        self,
        worker: str,
        machine: Machine | None = None,
        max_usd: float | None = None,
        since: float | None = None,
    ) -> None:
        """Begin an attempt.

        Without a machine, only earlier attempts are carried on. All attempts together may cost
        `max_usd` [$], None for no limit; the worker has waited for the run since then, in
        `time.monotonic`.
        """
        self._worker, self._machine, self._max_usd = worker, machine, max_usd
        self._price = None if machine is None else machine.usd_per_hour
        self._since = time.monotonic() if since is None else since
        self._attempts: list[Attempt] = []
        self._before = Spent()
        # The step that training begins at; set when it does.
        self.step: int | None = None

    def follow(self, record: Mapping[str, Any]) -> None:
        """Carry on the attempts in an untrusted record of the run's lease."""
        attempts, spent = read_attempts(record)
        last = attempts[-1] if attempts else None
        if last is not None and last.end is None:
            attempts[-1] = last = replace(last, end=LOST)
            if last.worker == _word(self._worker, _LONGEST_WORKER):
                # The claim of this very worker, whose answer was lost: it is counted below.
                usd = None if spent.usd is None else max(spent.usd - (last.usd or 0.0), 0.0)
                spent = replace(spent, usd=usd, seconds=max(spent.seconds - last.seconds, 0.0))
        if last is not None and last.step is None:
            # Nothing was trained; only its time and its price count.
            attempts.pop()
            spent = replace(spent, attempts=spent.attempts - 1)
        self._attempts, self._before = attempts, spent

    @property
    def usd(self) -> float:
        """What all attempts have cost by now, as far as prices are known [$]."""
        return (self._before.usd or 0.0) + (self._usd(self._seconds()) or 0.0)

    @property
    def left_s(self) -> float:
        """How long this attempt may go on until the share is spent [s]; infinite without one."""
        if self._max_usd is None or not self._price:
            return math.inf
        return 3600.0 * (self._max_usd - self.usd) / self._price

    @property
    def must_stop(self) -> bool:
        """Whether training must end now, with a checkpoint, so that the share is not exceeded."""
        return self.left_s <= self._margin(STOP_S)

    @property
    def must_kill(self) -> bool:
        """Whether training that has not ended must be killed."""
        return self.left_s <= self._margin(STOP_S) * KILL_S / STOP_S

    @property
    def reason(self) -> str:
        """Why a run is not trained whose share is spent."""
        return f"budget: {dollars(self.usd)} of {dollars(self._max_usd or 0.0)} are spent"

    def data(self, end: str | None) -> dict[str, Any]:
        """Return `attempts` and `spent` as a record has them; nothing if there was no attempt.

        `end` is how this attempt has ended, None if it has not.
        """
        attempts, spent = self._attempts, self._before
        if self._machine is not None:
            seconds = self._seconds()
            now = Attempt(
                _word(self._worker, _LONGEST_WORKER),
                None if self._machine.kind is None else _word(self._machine.kind),
                _word(self._machine.processor),
                self.step,
                round(seconds, 3),
                self._usd(seconds),
                end,
            )
            attempts = [*attempts, now][-MOST_ATTEMPTS:]
            spent = Spent(
                spent.attempts + 1,
                round(spent.seconds + seconds, 3),
                sum_known([spent.usd, now.usd]),
                _processors(spent.processors, [now]),
            )
        if not attempts and spent == Spent():
            return {}
        return {"attempts": [vars(attempt) for attempt in attempts], "spent": vars(spent)}

    def _seconds(self) -> float:
        return time.monotonic() - self._since

    def _usd(self, seconds: float) -> float | None:
        return None if self._price is None else round(self._price * seconds / 3600.0, 9)

    def _margin(self, most_s: float) -> float:
        if self._max_usd is None or not self._price:
            return 0.0
        return min(most_s, _LARGEST_PART * 3600.0 * self._max_usd / self._price)


def dollars(usd: float) -> str:
    """Return an amount as text; it is cut, not rounded, so that it never shows too much."""
    return f"${math.floor(usd * 1e4 + 1e-6) / 1e4:.4f}"


def _attempt(row: Mapping[str, Any]) -> Attempt:
    step, usd, end = _number(row.get("step"), _MOST_COUNT), row.get("usd"), row.get("end")
    machine = row.get("machine")
    return Attempt(
        _word(row.get("worker", ""), _LONGEST_WORKER),
        _word(machine) if isinstance(machine, str) else None,
        _word(row.get("processor", "")),
        None if step is None else int(step),
        _number(row.get("seconds"), _MOST_SECONDS) or 0.0,
        _number(usd, _MOST_USD),
        _word(end) if isinstance(end, str) else None,
    )


def _word(value: object, longest: int = _LONGEST_WORD) -> str:
    text = value if isinstance(value, str) else str(value)
    if len(text) <= longest and text.isascii() and text.isprintable():
        return text
    # Other characters take up to twelve bytes each in a record.
    return printable(text, longest).encode("ascii", "replace").decode()[: longest + 3]


def _number(value: object, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known [$], None if nothing is."""
    known = [value for value in values if value is not None]
    return round(math.fsum(known), 9) if known else None


def _processors(known: tuple[str, ...] | list[str], attempts: list[Attempt]) -> tuple[str, ...]:
    """Return the processors, and those of attempts that trained."""
    trained = [a.processor for a in attempts if a.step is not None]
    return tuple(dict.fromkeys([*known, *trained]))[:MOST_ATTEMPTS]

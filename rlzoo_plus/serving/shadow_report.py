"""What a shadow's file says: how often it agrees, where it differs, and whether that is enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import open_plain, parse_json, printable
from rlzoo_plus.errors import ConfigError

# An action agrees if no entry differs by more than this share of its range (of 2 without bounds).
AGREES = 0.05
ENOUGH, ENOUGH_SESSIONS = 1000, 5
_Z = 1.96  # Of a 95% interval
_LONGEST = 2**22


@dataclass
class Compared:
    """What one candidate did beside one version."""

    version: str
    candidate: str
    decisions: int = 0
    agreeing: int = 0
    failed: int = 0
    sessions: int = 0
    beyond: Counter[str] = field(default_factory=Counter)  # Limits it would have broken
    difference: list[float] | None = None  # Mean by entry, of its range
    largest: list[float] | None = None
    value_difference: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the share that agrees, at 95%."""
        n = max(self.decisions, 1)
        share = self.agreeing / n
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n)) / (1 + _Z**2 / n)
        return max(middle - half, 0.0), min(middle + half, 1.0)

    @property
    def lacks(self) -> str | None:
        """What is missing for a verdict, None if it is enough."""
        if self.decisions >= ENOUGH and self.sessions >= ENOUGH_SESSIONS:
            return None
        return (
            f"{self.decisions} decisions of {self.sessions} sessions or episodes; a verdict needs "
            f"{ENOUGH} of {ENOUGH_SESSIONS}"
        )

    def as_text(self) -> str:
        """Return it in lines for people."""
        low, high = self.interval
        lines = [
            f"candidate {printable(self.candidate)} beside {printable(self.version)}: "
            f"{self.decisions:,} decisions of {self.sessions} sessions or episodes",
            f"  agrees within {AGREES:.0%} of the range: {self.agreeing / self.decisions:.1%} "
            f"(95% interval {low:.1%} to {high:.1%})",
        ]
        for at, (mean, most) in enumerate(
            zip(self.difference or [], self.largest or [], strict=True)
        ):
            lines.append(
                f"  action[{at}]: mean difference {mean:.2%} of the range, largest {most:.2%}"
            )
        if self.value_difference is not None:
            lines.append(f"  its value is higher by {self.value_difference:.4g} on average")
        lines.append(f"  could not decide: {self.failed}")
        for name, count in self.beyond.most_common():
            lines.append(f"  would have been beyond the limit of {printable(name)}: {count} times")
        if not self.beyond:
            lines.append("  no command beyond the robot's limits")
        lines.append(
            f"  {'enough to judge' if self.lacks is None else f'not enough: {self.lacks}'}"
        )
        return "\n".join(lines)


def report(path: Path) -> list[Compared]:
    """Compare what a file of a shadow holds, by version and candidate.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    found: dict[tuple[str, str], _Sums] = {}
    for line in _lines(path):
        key = (str(line["version"]), str(line["candidate"]))
        try:
            found.setdefault(key, _Sums(Compared(*key))).add(line)
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"{printable(path)} is damaged: {error!r:.100}.") from None
    return [one.result() for one in found.values()]


class _Sums:
    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self._sum: np.ndarray | None = None
        self._largest: np.ndarray | None = None
        self._values = [0.0, 0]
        self._sessions: set[str] = set()
        self._starts = 0

    def add(self, line: Mapping[str, Any]) -> None:
        one = self._compared
        one.decisions += 1
        self._starts += line["step"] == 0
        if len(self._sessions) < ENOUGH:
            self._sessions.add(str(line["session"]))
        if line["shadow"] is None:
            one.failed += 1
            return
        gap = np.array(line["difference"], dtype=float)
        one.agreeing += bool((gap <= AGREES).all())
        for name in line["beyond"]:
            one.beyond[str(name)] += 1
        self._sum = gap if self._sum is None else self._sum + gap
        self._largest = gap if self._largest is None else np.maximum(self._largest, gap)
        if line.get("value") is not None and line.get("shadow_value") is not None:
            self._values[0] += line["shadow_value"] - line["value"]
            self._values[1] += 1

    def result(self) -> Compared:
        one, answered = self._compared, self._compared.decisions - self._compared.failed
        one.sessions = max(self._starts, len(self._sessions))
        if self._sum is not None and self._largest is not None:
            one.difference = (self._sum / answered).tolist()
            one.largest = self._largest.tolist()
        if self._values[1]:
            one.value_difference = self._values[0] / self._values[1]
        return one


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open_plain(path) as file:
            while data := file.readline(_LONGEST):
                try:
                    line = parse_json(data)
                # What a killed process left of a line.
                except ValueError:
                    continue
                if isinstance(line, dict) and {"version", "candidate", "shadow"} <= line.keys():
                    yield line
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{printable(path)}: no file of a shadow ({why}).") from None

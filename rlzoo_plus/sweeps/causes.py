"""The same mistake in many jobs, told once: how many jobs, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# A number that is a value, not the end of a name.
_NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_TOLD = 20


@dataclass
class _Cause:
    """Texts that differ in numbers at most."""

    first: str
    n_jobs: int = 0
    texts: set[str] = field(default_factory=set)


def tell_causes(texts: Iterable[str], total: int) -> list[str]:
    """Return a line for each cause: how many jobs have it, and the first text of it.

    Args:
        texts: What is wrong with each job that has something wrong; lines are causes of their own.
        total: All jobs.
    """
    causes: dict[str, _Cause] = {}
    for text in texts:
        for line in dict.fromkeys(text.split("\n")):
            cause = causes.setdefault(_NUMBER.sub("#", line), _Cause(line))
            cause.n_jobs += 1
            cause.texts.add(line)
    told = [_line(cause, total) for cause in list(causes.values())[:_MOST_TOLD]]
    n_more = len(causes) - _MOST_TOLD
    return told if n_more <= 0 else [*told, f"and {n_more:,} more mistakes"]


def _line(cause: _Cause, total: int) -> str:
    if total == 1:
        return cause.first
    others = len(cause.texts) - 1
    alike = f" (and {others:,} more like it, with other numbers)" if others else ""
    return f"{cause.n_jobs:,} of {total:,} jobs: {cause.first}{alike}"

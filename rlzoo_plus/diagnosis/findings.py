"""Findings: what is wrong with a configuration, and the same told once for many jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters: with an error nothing is trained, a warning is advice."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One thing to know.

    Attributes:
        level: How much it matters.
        text: The value, the rule and the mend.
    """

    level: Level
    text: str


@dataclass
class SharedFinding:
    """A finding and the jobs that have it.

    Attributes:
        finding: What it is.
        jobs: What tells each of these jobs from the others.
    """

    finding: Finding
    jobs: list[str] = field(default_factory=list)


def error(text: str) -> Finding:
    """Return an error."""
    return Finding(Level.ERROR, text)


def warning(text: str) -> Finding:
    """Return a warning."""
    return Finding(Level.WARNING, text)


def shared(per_job: Iterable[tuple[str, Iterable[Finding]]]) -> list[SharedFinding]:
    """Tell the same finding of many jobs once; errors come first.

    Args:
        per_job: The name of each job, and its findings.
    """
    found: dict[Finding, SharedFinding] = {}
    for job, findings in per_job:
        for finding in dict.fromkeys(findings):
            found.setdefault(finding, SharedFinding(finding)).jobs.append(job)
    return sorted(found.values(), key=lambda one: one.finding.level is not Level.ERROR)

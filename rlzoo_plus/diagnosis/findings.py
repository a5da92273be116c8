"""Findings: what is wrong with a configuration, the same told once for many jobs, and of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from rlzoo_plus.diagnosis.estimate import Estimate
    from rlzoo_plus.diagnosis.probe import ProbeResult


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


@dataclass
class JobFindings:
    """A job that was composed, or could not be.

    Attributes:
        words: Its overrides.
        config: None if it is refused.
        findings: What is known of it.
    """

    words: list[str]
    config: RunConfig | None
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Outcome:
    """What was found.

    Attributes:
        findings: Of all jobs, each told once.
        configs: The jobs that were composed.
        n_jobs: All jobs.
        is_sweep: Whether they are jobs of a sweep.
        result: What a probe measured, None without one.
        estimate: How long all will take.
        overrides: What to add to the command line.
        draws: Of a study: how many trials were drawn and looked at.
    """

    findings: list[SharedFinding]
    configs: list[RunConfig]
    n_jobs: int
    is_sweep: bool
    result: ProbeResult | None = None
    estimate: Estimate | None = None
    overrides: list[str] = field(default_factory=list)
    draws: int | None = None

    @property
    def is_refused(self) -> bool:
        """Tell whether training would not begin."""
        return any(one.finding.level is Level.ERROR for one in self.findings)


def names_of(jobs: list[JobFindings]) -> list[str]:
    """Name each job by the words that not all of them have."""
    composed = [set(job.words) for job in jobs if job.words]
    common = set.intersection(*composed) if composed else set()
    names = []
    for number, job in enumerate(jobs):
        own = [word for word in job.words if word not in common]
        names.append(" ".join(own) or f"job {number}")
    return names

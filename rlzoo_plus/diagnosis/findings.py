"""Findings: what is wrong with configurations, grouped over jobs, as text and as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlzoo_plus.diagnosis.estimate import Estimate
    from rlzoo_plus.diagnosis.probe import ProbeResult

_MOST_NAMED = 3
_LONGEST_NAMES = 200


class Level(StrEnum):
    """How much a finding matters: with an error nothing is trained, a warning is advice."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One error or warning.

    Attributes:
        level: How much it matters.
        text: The value, the rule and the fix.
    """

    level: Level
    text: str


error = partial(Finding, Level.ERROR)
warning = partial(Finding, Level.WARNING)


@dataclass
class JobFindings:
    """A job that was composed, or could not be.

    Attributes:
        overrides: Its overrides.
        config: None if it is refused.
        findings: Its errors and warnings.
    """

    overrides: list[str]
    config: RunConfig | None
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Outcome:
    """All findings of a command line, and what a probe measured.

    Attributes:
        findings: Those of all jobs, and the names of the jobs that have each.
        configs: The jobs that were composed.
        n_jobs: All jobs.
        is_sweep: Whether they are jobs of a sweep.
        result: What a probe measured, None without one.
        estimate: How long all will take.
        overrides: What to add to the command line.
        draws: Of a study: how many trials were drawn and checked.
    """

    findings: dict[Finding, list[str]]
    configs: list[RunConfig]
    n_jobs: int
    is_sweep: bool
    result: ProbeResult | None = None
    estimate: Estimate | None = None
    overrides: list[str] = field(default_factory=list)
    draws: int | None = None

    @property
    def is_refused(self) -> bool:
        """Whether training would not begin."""
        return any(finding.level is Level.ERROR for finding in self.findings)

    def counts(self) -> str:
        """Return how many findings of each level there are, as text."""
        texts = []
        for level in Level:
            count = sum(finding.level is level for finding in self.findings)
            if count:
                texts.append(f"{count} {level}{'s' if count > 1 else ''}")
        return ", ".join(texts) or "nothing wrong"

    def as_data(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        probe = None
        if self.result is not None:
            training_s = self.estimate and round(self.estimate.training_s, 1)
            probe = {
                "measurements": [measurement.as_data() for measurement in self.result.measurements],
                "left_out": [kind.name for kind in self.result.left_out],
                "overrides": self.overrides,
                "training_s": training_s,
                "with_evaluations_s": self.estimate and self.estimate.with_evaluations_s,
            }
        findings = [
            {"level": str(found.level), "text": found.text, "n_jobs": len(jobs), "jobs": jobs}
            for found, jobs in self.findings.items()
        ]
        return {"jobs": self.n_jobs, "findings": findings, "probe": probe}


def shared(per_job: Iterable[tuple[str, Iterable[Finding]]]) -> dict[Finding, list[str]]:
    """Return the names of the jobs that have each finding; errors come first.

    Args:
        per_job: The name of each job, and its findings.
    """
    found: dict[Finding, list[str]] = {}
    for job, findings in per_job:
        for finding in dict.fromkeys(findings):
            found.setdefault(finding, []).append(job)
    return {one: found[one] for one in sorted(found, key=lambda one: one.level is not Level.ERROR)}


def names_of(jobs: list[JobFindings]) -> list[str]:
    """Name each job by the overrides that not all of them have."""
    composed = [set(job.overrides) for job in jobs if job.overrides]
    common = set.intersection(*composed) if composed else set()
    own = (" ".join(word for word in job.overrides if word not in common) for job in jobs)
    return [name or f"job {number}" for number, name in enumerate(own)]


def finding_text(finding: Finding, jobs: list[str], n_jobs: int) -> RenderableType:
    """Return a finding, and which jobs have it if there are several jobs."""
    from rich.text import Text

    colour = "red" if finding.level is Level.ERROR else "yellow"
    text = Text.assemble((f"{finding.level}:", colour), f" {finding.text}")
    if n_jobs == 1:
        return text
    which = f"in all {n_jobs} jobs"
    if len(jobs) < n_jobs:
        named = [job for job in jobs if job][:_MOST_NAMED]
        names = "; ".join(named)
        names = names if len(names) <= _LONGEST_NAMES else names[: _LONGEST_NAMES - 3] + "..."
        which = f"in {len(jobs)} of {n_jobs} jobs: {names}{', ...' * (len(jobs) > len(named))}"
    return text.append(f"\n  {which}", style="dim")

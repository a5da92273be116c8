"""A reason why a run does not learn: what was measured, and what to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """A reason why a run does not learn."""

    name: str  # Short and stable, for programs
    evidence: str  # What was measured, and what follows
    fix: str  # What to change
    is_hint: bool = False  # Whether many environments are like that and are learned

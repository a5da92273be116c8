"""What the findings and the figures of a probe look like, in a terminal and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlzoo_plus.diagnosis.estimate import Estimate
from rlzoo_plus.diagnosis.findings import Level, SharedFinding
from rlzoo_plus.diagnosis.probe import Measurement, ProbeResult, Setting

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_COLOURS = {Level.ERROR: "red", Level.WARNING: "yellow"}
_MOST_NAMED = 3
_LONGEST_NAMES = 200


def finding_text(shared: SharedFinding, n_jobs: int) -> RenderableType:
    """Return a finding, and which jobs have it if there are several jobs."""
    from rich.text import Text

    level = shared.finding.level
    text = Text.assemble((f"{level}:", _COLOURS[level]), f" {shared.finding.text}")
    if n_jobs > 1:
        text.append(f"\n  {_which(shared.jobs, n_jobs)}", style="dim")
    return text


def counts(findings: list[SharedFinding]) -> str:
    """Return how many findings of each level there are, in words."""
    words = []
    for level in Level:
        count = sum(shared.finding.level is level for shared in findings)
        if count:
            words.append(f"{count} {level}{'s' if count > 1 else ''}")
    return ", ".join(words) or "nothing wrong"


def probe_table(result: ProbeResult) -> Table:
    """Return the figures of a probe; the setting that is recommended is marked."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("jobs")
    for name in ("vec_env", "threads", "at once", "steps/s"):
        table.add_column(name, no_wrap=True, justify="left" if name == "vec_env" else "right")
    table.add_column("")
    for measurement in result.measurements:
        setting = measurement.setting
        table.add_row(
            Text(measurement.kind.name),
            setting.vec_env,
            str(setting.threads),
            str(setting.workers),
            _rate(measurement),
            Text("<- recommended" if measurement is result.best else measurement.reason),
        )
    return table


def setting_text(setting: Setting) -> str:
    """Return a setting in words."""
    return f"{setting.vec_env}, threads {setting.threads}, {setting.workers} at once"


def estimate_text(estimate: Estimate, n_jobs: int) -> str:
    """Return how long it will take, in a line."""
    what = f"{n_jobs} jobs, {estimate.workers} at once" if n_jobs > 1 else "the run"
    text = f"{what}: about {duration(estimate.training_s)} of training"
    whole = estimate.with_evaluations_s
    if whole is None:
        return f"{text}, and the time for evaluations"
    if duration(whole) == duration(estimate.training_s):
        return text
    return f"{text}, up to {duration(whole)} with evaluations"


def as_data(
    findings: list[SharedFinding],
    n_jobs: int,
    result: ProbeResult | None,
    estimate: Estimate | None,
    overrides: list[str],
) -> dict[str, Any]:
    """Return all of it as plain data."""
    told = [
        {
            "level": str(shared.finding.level),
            "text": shared.finding.text,
            "n_jobs": len(shared.jobs),
            "jobs": shared.jobs,
        }
        for shared in findings
    ]
    probe = None
    if result is not None:
        probe = {
            "measurements": [_measurement_data(m) for m in result.measurements],
            "left_out": [kind.name for kind in result.left_out],
            "overrides": overrides,
            "training_s": estimate and round(estimate.training_s, 1),
            "with_evaluations_s": estimate and estimate.with_evaluations_s,
        }
    return {"jobs": n_jobs, "findings": told, "probe": probe}


def duration(seconds: float) -> str:
    """Return a time as people say it: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 99.5:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _which(jobs: list[str], n_jobs: int) -> str:
    if len(jobs) == n_jobs:
        return f"in all {n_jobs} jobs"
    named = [job for job in jobs if job][:_MOST_NAMED]
    more = ", ..." if len(jobs) > len(named) else ""
    names = "; ".join(named)
    names = names if len(names) <= _LONGEST_NAMES else names[: _LONGEST_NAMES - 3] + "..."
    return f"in {len(jobs)} of {n_jobs} jobs: {names}{more}"


def _rate(measurement: Measurement) -> str:
    if measurement.rate is None:
        return "-"
    return f"{'~' if measurement.rough else ''}{measurement.rate:,.0f}"


def _measurement_data(measurement: Measurement) -> dict[str, Any]:
    setting = measurement.setting
    return {
        "jobs": measurement.kind.name,
        "vec_env": setting.vec_env,
        "num_threads": setting.threads,
        "workers": setting.workers,
        "steps_per_s": measurement.rate,
        "rough": measurement.rough,
        "evaluation_steps_per_s": measurement.eval_rate,
        "reason": measurement.reason,
    }

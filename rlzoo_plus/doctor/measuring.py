"""Measures jobs here, and adds how long they take, or what they cost and need in a cloud."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from rlzoo_plus.config.catalog import LAUNCHERS
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.doctor.check_jobs import Finding, Outcome, warning
from rlzoo_plus.doctor.spot_advice import notice_advice
from rlzoo_plus.sweeps.estimate import (
    estimate,
    job_times,
    longest_episodes,
    overrides_for,
    probe_jobs,
    rates_of,
)
from rlzoo_plus.sweeps.probe import ProbeResult, kinds_of
from rlzoo_plus.sweeps.sweep_job import busy_cores


def measure(outcome: Outcome, seconds: float) -> None:
    """Train some of the jobs for some seconds, in a temporary folder, and add the measurements.

    The outcome has no errors, and its jobs are for this machine.
    """
    configs = outcome.configs
    outcome.result = probe_jobs(configs, seconds, is_sweep=outcome.is_sweep)
    outcome.estimate = estimate(outcome.result, configs, longest_episodes(configs))
    if outcome.result.best is not None:
        outcome.overrides = overrides_for(outcome.result.best, is_sweep=outcome.is_sweep)


def plan_in_cloud(outcome: Outcome, seconds: float) -> dict[Finding, list[str]]:
    """Measure the jobs, and add the plan of a dry run and warnings about Spot machines.

    Args:
        outcome: The jobs, without errors; `result`, `plan` and `findings` are filled in.
        seconds: Time to measure [s], 0 to measure nothing.

    Returns:
        The warnings that were added, with the jobs that have each.

    Raises:
        ConfigError: No price is known, or the budget is too small.
    """
    configs, longest = outcome.configs, longest_episodes(outcome.configs)
    outcome.result = ProbeResult()
    if seconds:
        outcome.result = probe_jobs(configs, seconds, is_sweep=True, compares=False)
    settings = settings_of(configs[0].infra)
    added: dict[Finding, list[str]] = {}
    if settings.spot:
        rates = rates_of(outcome.result, configs)
        for kind in kinds_of(configs):
            for job in kind.jobs:
                episode = longest[str(job.env.name)]
                for text in notice_advice(job, rates.get(kind.name), episode):
                    added.setdefault(warning(text), []).append(f"{kind.name}, seed {job.seed}")
    outcome.findings |= added
    times = job_times(outcome.result, configs, longest)
    keyed = {str(number): config for number, config in enumerate(configs)}
    launcher = LAUNCHERS.load(configs[0].infra.name)
    outcome.plan = launcher.plan_of(settings, keyed, times, max(map(busy_cores, configs)))
    return added


def probe_table(result: ProbeResult) -> Table:
    """Return the measurements of a probe; the setting that is recommended is marked."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("jobs")
    for name in ("vec_env", "threads", "at once", "steps/s"):
        table.add_column(name, no_wrap=True, justify="left" if name == "vec_env" else "right")
    table.add_column("")
    for measured in result.measurements:
        setting, rate = measured.setting, measured.rate
        table.add_row(
            Text(measured.kind.name),
            setting.vec_env,
            str(setting.threads),
            str(setting.workers),
            "-" if rate is None else f"{'~' if measured.rough else ''}{rate:,.0f}",
            Text("<- recommended" if measured is result.best else measured.reason),
        )
    return table

"""Measures jobs for machines in AWS here, and adds their plan and what Spot machines need."""

from __future__ import annotations

from rlzoo_plus.config.catalog import LAUNCHERS
from rlzoo_plus.doctor.check_jobs import Finding, Outcome, warning
from rlzoo_plus.doctor.probe import ProbeResult, kinds_of
from rlzoo_plus.doctor.spot_advice import notice_advice


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
    from rlzoo_plus.cloud.launch_plan import plan_lines, vcpus_of
    from rlzoo_plus.config.resolve import settings_of
    from rlzoo_plus.doctor.estimate import job_times, longest_episodes, probe_jobs, rates_of
    from rlzoo_plus.sweeps.sweep_job import busy_cores

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
    vcpus = vcpus_of(settings, max(map(busy_cores, configs)))
    title = LAUNCHERS.load(configs[0].infra.name).title
    outcome.plan = plan_lines(keyed, times, settings, vcpus, title)
    return added

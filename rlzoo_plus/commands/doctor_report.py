"""What `rlzoo-plus doctor` does once its arguments are right: it checks, measures and prints."""

from __future__ import annotations

import json
from dataclasses import asdict

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.config.catalog import IN_CLOUD
from rlzoo_plus.doctor.advice import slots_for
from rlzoo_plus.doctor.check_jobs import Finding, Outcome, check_jobs, finding_text
from rlzoo_plus.doctor.measuring import measure, plan_in_cloud, probe_table
from rlzoo_plus.doctor.not_learning import why_not
from rlzoo_plus.errors import USER_ERROR, ConfigError
from rlzoo_plus.sweeps.launchers.usage import cores
from rlzoo_plus.sweeps.refusals import ON_THIS_MACHINE
from rlzoo_plus.sweeps.sweep_view import SweepView


def examine(overrides: list[str], probe_s: float, *, as_json: bool) -> int:
    """Check all jobs of a command line, measure for some seconds, and print; return the code."""
    # Progress goes to stderr: the output may be JSON.
    outcome = check_jobs(overrides, SweepView(lambda: make_console(stderr=True)))
    if not as_json:
        _print_outcome(outcome)
    if outcome.configs and not outcome.is_refused:
        if outcome.configs[0].infra.name in IN_CLOUD:
            _plan(outcome, probe_s, quiet=as_json)
        elif probe_s:
            _measure(outcome, probe_s, quiet=as_json)
    if as_json:
        print(json.dumps(outcome.as_data(), indent=2))
    return USER_ERROR if outcome.is_refused else 0


def explain(overrides: list[str], *, as_json: bool) -> int:
    """Check one run, probe its environment, and print why it may not learn; return the code."""
    outcome = check_jobs(overrides, SweepView(lambda: make_console(stderr=True)))
    if outcome.is_sweep:
        raise ConfigError(
            "--learn looks at one run, and these overrides are a sweep. Give each key one value."
        )
    causes = [] if outcome.is_refused else why_not(outcome.configs[0])
    if as_json:
        print(json.dumps({**outcome.as_data(), "causes": list(map(asdict, causes))}, indent=2))
        return USER_ERROR if outcome.is_refused else 0
    _print_findings(outcome.findings, outcome.n_jobs)
    for number, cause in enumerate(causes, 1):
        hint = " (a hint)" if cause.is_hint else ""
        _print(f"{number}. {cause.name}{hint}: {cause.evidence}.\n   {cause.fix}.")
    if all(cause.is_hint for cause in causes) and not outcome.is_refused:
        _print("no cause found: probes and settings look as they do where agents learn")
    return USER_ERROR if outcome.is_refused else 0


def _print_outcome(outcome: Outcome) -> None:
    n_jobs, configs = outcome.n_jobs, outcome.configs
    _print_findings(outcome.findings, n_jobs)
    what = counted(n_jobs, "job") if outcome.is_sweep else "1 run"
    if outcome.draws is not None:
        what = f"the study, checked with {outcome.draws} draws"
    if outcome.is_sweep and configs and configs[0].infra.name in ON_THIS_MACHINE:
        what += f", {slots_for(configs)} at once"
    _print(f"{what}: {outcome.counts()}")
    if outcome.work:
        _print(f"{outcome.work}; pruning ends some trials early")


def _print_findings(findings: dict[Finding, list[str]], n_jobs: int) -> None:
    console = make_console()
    for finding, jobs in findings.items():
        console.print(finding_text(finding, jobs, n_jobs))


def _print(line: str) -> None:
    make_console().print(line, markup=False)


def _plan(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train for some seconds, and print what the jobs cost in AWS and what Spot machines need."""
    if seconds and not quiet:
        _print(f"\nprobe: training here for about {seconds:g} s, on {cores()} cores ...")
    warnings = plan_in_cloud(outcome, seconds)
    if quiet:
        return
    assert outcome.result is not None
    if outcome.result.measurements:
        make_console().print(probe_table(outcome.result))
    _print_findings(warnings, outcome.n_jobs)
    for line in outcome.plan:
        _print(line)


def _measure(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train for some seconds, and print how fast it was and which settings are the fastest."""
    infra = outcome.configs[0].infra
    is_here = infra.name in ON_THIS_MACHINE
    if not quiet and is_here:
        _print(f"\nprobe: training for about {seconds:g} s, on {cores()} cores ...")
    elif not quiet:
        _print(f"no probe: infra={infra.name} trains on other machines")
    if is_here:
        measure(outcome, seconds)
    if quiet or not is_here:
        return
    assert outcome.result is not None
    make_console().print(probe_table(outcome.result))
    lines = {
        "not measured": ", ".join(kind.name for kind in outcome.result.left_out),
        "not tried, for lack of time": "; ".join(map(str, outcome.result.not_tried)),
    }
    for label, names in lines.items():
        if names:
            _print(f"{label}: {names}")
    if outcome.estimate is not None:
        is_study = outcome.draws is not None
        _print(outcome.estimate.text(outcome.n_jobs, is_study=is_study))
    if outcome.overrides:
        _print(f"fastest with: {' '.join(outcome.overrides)}")
